#include "support/seat.h"

#include "support/test.h"

int64_t seat_deadline(void)
{
    return dibs__after_ms(dibs__now(&dibs__system_clock), LIMIT_MS);
}

bool seat_await(struct seat *seat, const struct dibs__op *op, int64_t until)
{
    const struct dibs__waiting waiting = {.clock = &dibs__system_clock, .until = until};

    return dibs__op_await(seat->store, op, &waiting) == DIBS__HAS_COME;
}

/* ------------------------------------------------------------- the listener */

static void on_wake(void *context)
{
    struct seat *seat = context;

    dibs__wake_ring(&seat->wake);
}

static void on_wake_by(void *context, int64_t when)
{
    on_wake(context);
}

static bool on_granted(void *context, const struct dibs__grant *grant)
{
    struct seat *seat = context;

    pthread_mutex_lock(&seat->mutex);
    seat->grant.count++;
    snprintf(seat->grant.name, sizeof seat->grant.name, "%.63s", grant->name);
    snprintf(seat->grant.token, sizeof seat->grant.token, "%s", grant->token);
    seat->grant.number = grant->number;
    seat->grant.fence = grant->fence;
    seat->grant.confirm = grant->confirm;
    pthread_mutex_unlock(&seat->mutex);
    return !atomic_load(&seat->refuses);
}

static void ignore(void *context)
{
}

static void ignore_change(void *context, const char *name)
{
    (void)context, (void)name;
}

static void on_reachable(void *context, bool up, const char *detail)
{
}

/* ------------------------------------------------------------ the scheduler */

static void on_renewed(struct dibs__batch *batch, const struct dibs__error *error)
{
    struct seat *seat = batch->context;

    if (batch->items[0].status == DIBS_OK)
        batch->items[0].status = error->status;
    pthread_mutex_lock(&seat->mutex);
    seat->renewed = true;
    pthread_mutex_unlock(&seat->mutex);
}

/* What a store of several servers says of one of them. */
static void on_landed(struct dibs__batch *batch, struct dibs__batch *part, const struct dibs__error *error)
{
    batch->items[0] = part->items[0];
    if (batch->items[0].status == DIBS_OK)
        batch->items[0].status = error->status;
}

static void renew_what_is_due(struct seat *seat)
{
    pthread_mutex_lock(&seat->mutex);
    struct dibs__batch *batch = seat->due;
    seat->due = NULL;
    pthread_mutex_unlock(&seat->mutex);
    if (batch)
        seat->store->ops->renew(seat->store, batch);
}

static void *schedule(void *arg)
{
    struct seat *seat = arg;
    struct pollfd *fds = calloc(seat->store->fd_max + 1, sizeof *fds);

    while (fds && !atomic_load(&seat->ending)) {
        int64_t until;
        renew_what_is_due(seat);
        size_t count = seat->store->ops->interest(seat->store, fds + 1, &until);
        fds[0] = (struct pollfd){.fd = seat->wake.fds[0], .events = POLLIN};
        dibs__system_clock.poll(&dibs__system_clock, fds, (nfds_t)(count + 1), until);
        if (fds[0].revents)
            dibs__wake_quiet(&seat->wake);
        seat->store->ops->attend(seat->store, fds + 1, count);
    }
    free(fds);
    return NULL;
}

/* ----------------------------------------------------------------- the test */

static void open_store(struct seat *seat, const struct dibs__store_config *config)
{
    static atomic_uint opened;
    struct dibs__store_config full = *config;
    struct dibs__error error = {DIBS_OK, ""};

    memset(seat, 0, sizeof *seat);
    snprintf(seat->id, sizeof seat->id, "seat%u", atomic_fetch_add(&opened, 1));
    full.key_prefix = "lock:";
    full.client_name = full.runtime_id = seat->id;
    full.connect_timeout_ms = full.connect_timeout_ms ? full.connect_timeout_ms : LIMIT_MS;
    full.command_timeout_ms = full.command_timeout_ms ? full.command_timeout_ms : LIMIT_MS;
    full.access = seat->access = config->access ? config->access : calloc(1, sizeof *seat->access);
    full.clock = &dibs__system_clock;
    full.listener = (struct dibs__listener){.context = seat,
                                            .wake = on_wake,
                                            .wake_by = on_wake_by,
                                            .ask_again = ignore,
                                            .changed = ignore_change,
                                            .source = seat,
                                            .granted = on_granted,
                                            .server_changed = ignore,
                                            .reachable = on_reachable};
    full.counters = &seat->counters;
    pthread_mutex_init(&seat->mutex, NULL);
    assert_true(dibs__wake_init(&seat->wake));
    dibs_status status = dibs__store_open(&seat->store, &full, &error);
    assert_that(status == DIBS_OK, "the store of %s: %s", config->url, error.detail);
}

static void start_scheduler(struct seat *seat)
{
    assert_int_equal(pthread_create(&seat->scheduler, NULL, schedule, seat), 0);
}

static void connect_store(struct seat *seat, bool wait)
{
    struct dibs__error error = {DIBS_OK, ""};

    assert_that(seat->store->ops->connect(seat->store, wait, &error) == DIBS_OK, "%s", error.detail);
}

void seat_open(struct seat *seat, const struct dibs__store_config *config)
{
    open_store(seat, config);
    connect_store(seat, false);
    start_scheduler(seat);
    connect_store(seat, true);
}

void seat_open_unconnected(struct seat *seat, const struct dibs__store_config *config)
{
    open_store(seat, config);
    start_scheduler(seat);
}

void seat_close(struct seat *seat)
{
    atomic_store(&seat->ending, true);
    dibs__wake_ring(&seat->wake);
    pthread_join(seat->scheduler, NULL);
    seat->store->ops->close(seat->store);
    dibs__access_free(seat->access);
    dibs__wake_free(&seat->wake);
    pthread_mutex_destroy(&seat->mutex);
}

struct seat_grant seat_last_grant(struct seat *seat)
{
    pthread_mutex_lock(&seat->mutex);
    struct seat_grant grant = seat->grant;
    pthread_mutex_unlock(&seat->mutex);
    return grant;
}

struct seat_grant seat_await_grant(struct seat *seat, unsigned count)
{
    await_or_say(seat_last_grant(seat).count >= count, "the grant is not told");
    return seat_last_grant(seat);
}

static bool is_renewed(struct seat *seat)
{
    pthread_mutex_lock(&seat->mutex);
    bool renewed = seat->renewed;
    pthread_mutex_unlock(&seat->mutex);
    return renewed;
}

static struct dibs__batch batch; /* too large for a small stack; the test has one thread that renews */

static void begin_renewals(struct seat *seat, const struct dibs__renewal *renewals, size_t count)
{
    memset(&batch, 0, sizeof batch);
    batch.count = count;
    memcpy(batch.items, renewals, count * sizeof *renewals);
    batch.done = on_renewed;
    batch.landed = on_landed;
    batch.context = seat;
    pthread_mutex_lock(&seat->mutex);
    seat->due = &batch;
    seat->renewed = false;
    pthread_mutex_unlock(&seat->mutex);
    dibs__wake_ring(&seat->wake);
}

static void end_renewals(struct seat *seat, struct dibs__renewal *renewals, size_t count)
{
    await_or_say(is_renewed(seat), "the renewal has no end");
    memcpy(renewals, batch.items, count * sizeof *renewals);
}

void seat_begin_renewal(struct seat *seat, const struct dibs__renewal *renewal)
{
    begin_renewals(seat, renewal, 1);
}

enum dibs__renewed seat_end_renewal(struct seat *seat, struct dibs__renewal *renewal)
{
    end_renewals(seat, renewal, 1);
    return renewal->result;
}

/* Where the scheduler's connection does not stand yet, a renewal finds none. */
void seat_renew_batch(struct seat *seat, struct dibs__renewal *renewals, size_t count)
{
    int64_t end = now_ms() + LIMIT_MS;

    do {
        begin_renewals(seat, renewals, count);
        end_renewals(seat, renewals, count);
        if (renewals->result == DIBS__UNANSWERED)
            pause_ms(5);
    } while (renewals->result == DIBS__UNANSWERED && now_ms() < end);
}

enum dibs__renewed seat_renew(struct seat *seat, struct dibs__renewal *renewal)
{
    seat_renew_batch(seat, renewal, 1);
    return renewal->result;
}

void seat_await_confirmed(struct seat *seat)
{
    await_or_say(atomic_load(&seat->counters.unconfirmed) == 0, "what is retracted is not confirmed");
}
