#include "support/faults.h"

#include "support/test.h"

struct unconfirmed {
    struct unconfirmed *next;
    struct dibs__store *inner;
    struct dibs__counters *counters; /* of the runtime */
    char token[DIBS__TOKEN_MAX];
    char name[DIBS_NAME_MAX + 1];
};

static struct faults *current;

void faults_init(struct faults *faults, const struct dibs__clock *clock)
{
    memset(faults, 0, sizeof *faults);
    pthread_mutex_init(&faults->mutex, NULL);
    pthread_cond_init(&faults->unblocked, NULL);
    faults->clock = clock;
    faults->kept_end = &faults->kept;
    current = faults;
}

void faults_destroy(struct faults *faults)
{
    current = NULL;
    pthread_cond_destroy(&faults->unblocked);
    pthread_mutex_destroy(&faults->mutex);
}

struct faults *faults_current(void)
{
    return current;
}

static void set_fault(struct faults *faults, struct fault *fault, dibs_status status, unsigned count)
{
    pthread_mutex_lock(&faults->mutex);
    *fault = (struct fault){status, status == DIBS_OK ? 0 : count};
    pthread_mutex_unlock(&faults->mutex);
}

void faults_acquire(struct faults *faults, dibs_status status, unsigned count)
{
    set_fault(faults, &faults->acquire, status, count);
}

void faults_release(struct faults *faults, dibs_status status, unsigned count)
{
    set_fault(faults, &faults->release, status, count);
}

void faults_renewal(struct faults *faults, dibs_status status, unsigned count)
{
    set_fault(faults, &faults->renewal, status, count);
}

void faults_look(struct faults *faults, dibs_status status, unsigned count)
{
    set_fault(faults, &faults->look, status, count);
}

void faults_renewal_gone(struct faults *faults, const char *name)
{
    pthread_mutex_lock(&faults->mutex);
    snprintf(faults->gone, sizeof faults->gone, "%s", name);
    pthread_mutex_unlock(&faults->mutex);
}

void faults_look_gone(struct faults *faults, const char *name)
{
    pthread_mutex_lock(&faults->mutex);
    snprintf(faults->other, sizeof faults->other, "%s", name);
    pthread_mutex_unlock(&faults->mutex);
}

void faults_set(struct faults *faults, bool *flag, bool value)
{
    pthread_mutex_lock(&faults->mutex);
    *flag = value;
    pthread_mutex_unlock(&faults->mutex);
}

void faults_hold_renewals(struct faults *faults)
{
    faults_set(faults, &faults->held_back, true);
}

void faults_let_renewals_go(struct faults *faults)
{
    faults_set(faults, &faults->held_back, false);
}

void faults_hold_looks(struct faults *faults)
{
    faults_set(faults, &faults->looks_held_back, true);
}

void faults_let_looks_go(struct faults *faults)
{
    faults_set(faults, &faults->looks_held_back, false);
}

void faults_block_acquires(struct faults *faults)
{
    pthread_mutex_lock(&faults->mutex);
    faults->blocked = true;
    faults->blocking = false;
    pthread_mutex_unlock(&faults->mutex);
}

static bool one_is_blocked(struct faults *faults)
{
    pthread_mutex_lock(&faults->mutex);
    bool blocking = faults->blocking;
    pthread_mutex_unlock(&faults->mutex);
    return blocking;
}

void faults_await_blocked(struct faults *faults)
{
    await_or_say(one_is_blocked(faults), "nobody asks the store");
}

void faults_let_one_go(struct faults *faults)
{
    pthread_mutex_lock(&faults->mutex);
    faults->one_goes = true;
    faults->blocking = false;
    pthread_cond_broadcast(&faults->unblocked);
    pthread_mutex_unlock(&faults->mutex);
}

void faults_unblock_acquires(struct faults *faults)
{
    pthread_mutex_lock(&faults->mutex);
    faults->blocked = false;
    pthread_cond_broadcast(&faults->unblocked);
    pthread_mutex_unlock(&faults->mutex);
}

dibs_status faults_use(struct fault *fault)
{
    if (fault->left == 0)
        return DIBS_OK;
    if (fault->left != FOR_EVER)
        fault->left--;
    return fault->status;
}

void faults_keep_unconfirmed(struct faults *faults, struct dibs__store *inner, struct dibs__counters *counters,
                             const char *name, const char *token)
{
    struct unconfirmed *entry = calloc(1, sizeof *entry);

    if (!entry)
        abort();
    entry->inner = inner;
    entry->counters = counters;
    atomic_fetch_add(&counters->unconfirmed, 1);
    snprintf(entry->name, sizeof entry->name, "%s", name);
    snprintf(entry->token, sizeof entry->token, "%s", token);
    entry->next = faults->unconfirmed;
    faults->unconfirmed = entry;
}

void faults_confirm(struct faults *faults)
{
    pthread_mutex_lock(&faults->mutex);
    struct unconfirmed *list = faults->unconfirmed;
    faults->unconfirmed = NULL;
    pthread_mutex_unlock(&faults->mutex);
    while (list) {
        struct unconfirmed *next = list->next;
        list->inner->ops->retract(list->inner, list->name, list->token, DIBS__LEASE_MAX_MS, 0);
        atomic_fetch_sub(&list->counters->unconfirmed, 1);
        free(list);
        list = next;
    }
}

unsigned faults_count(struct faults *faults, const unsigned *counter)
{
    pthread_mutex_lock(&faults->mutex);
    unsigned count = *counter;
    pthread_mutex_unlock(&faults->mutex);
    return count;
}
