#include <string.h>

#include "base/random.h"
#include "redis/subscriber_parts.h"

#define DENIED_PAUSE_MS 6000 /* longest pause, and twice the shortest; the right may be granted, but not soon */
#define SILENCE_MS 5000      /* a link on which nothing came for this long is PINGed */

/*
 * The longest pause between subscriptions that nothing confirms. If a thread waits for a subscription, a pause is at
 * most half of the command timeout, so that an ask of that thread, which may last for all of it, finds a subscription.
 */
#define UNCONFIRMED_LAST_MS 2000

/* ---------------------------------------------------------- how a try ended */

/* why NULL: the subscription was made. */
static void tell_waiting_threads(struct dibs__subscriber *subscriber, const struct dibs__error *why)
{
    subscriber_mutex_lock(&subscriber->mutex);
    if (why)
        subscriber->failure = *why;
    else
        subscriber->failure.status = DIBS_OK;
    if (!why)
        atomic_store(&subscriber->serial, subscriber->last_serial);
    atomic_fetch_add(&subscriber->tries, 1);
    atomic_store(&subscriber->connector.needed, false);
    pthread_cond_broadcast(&subscriber->changed);
    subscriber_mutex_unlock(&subscriber->mutex);
}

/* Called when the server has confirmed the subscription. */
static void stand(struct dibs__subscriber *subscriber, int64_t now) DIBS__REQUIRES(dibs__reading_role)
{
    atomic_store(&subscriber->last_received_at, now);
    subscriber->last_serial++;
    subscriber->stood_at = now;
    subscriber->relied_on = true;
    tell_waiting_threads(subscriber, NULL);
    if (!dibs__subscriber_is_unconfirmed(subscriber))
        subscriber->hooks.missed(subscriber->hooks.above);
}

/*
 * Called when a subscription was lost that nothing had confirmed. If nothing confirmed the ones before it either, the
 * server may never hear any, and the pause grows. The pause counts from when the subscription was made.
 */
static void put_off_next(struct dibs__subscriber *subscriber)
{
    bool again = dibs__subscriber_is_unconfirmed(subscriber);

    if (!again)
        dibs__backoff_reset(&subscriber->retry);
    int64_t drawn = dibs__backoff_next(&subscriber->retry, UNCONFIRMED_LAST_MS),
            pause = again ? drawn : DIBS__UNCONFIRMED_FIRST_MS;
    int64_t most = subscriber->endpoint->command_timeout_ms / 2;
    subscriber->connector.next_at = dibs__after_ms(subscriber->stood_at, pause);
    subscriber->connector.soonest_at = dibs__after_ms(subscriber->stood_at, pause < most ? pause : most);
    atomic_fetch_add(&subscriber->unconfirmed_count, 1);
}

/* Called when a subscription is lost or distrusted. If it was ever confirmed, the next one need not wait. */
static void lose(struct dibs__subscriber *subscriber) DIBS__REQUIRES(dibs__reading_role)
{
    DIBS__REQUIRE(subscriber->link != NULL);
    atomic_store(&subscriber->serial, 0);
    subscriber->connector.before = subscriber->link->view.id;
    dibs__link_free(subscriber->link);
    subscriber->link = NULL;
    subscriber->hears_asked = false;
    dibs__slots_drop(subscriber);
    subscriber->pinged_after = DIBS__NEVER;
    if (atomic_load(&subscriber->confirmed) == subscriber->last_serial)
        atomic_store(&subscriber->unconfirmed_count, 0);
    else
        put_off_next(subscriber);
}

/*
 * The first try that fails after there was a subscription may be the first of many. So waiters that sleep until they
 * are told must hear that they have to ask by themselves.
 */
static void fail_try(struct dibs__subscriber *subscriber, const struct dibs__error *why, int64_t now)
    DIBS__REQUIRES(dibs__reading_role)
{
    if (why->status == DIBS_DENIED)
        subscriber->connector.next_at = dibs__after_ms(now, dibs__jitter(DENIED_PAUSE_MS / 2, DENIED_PAUSE_MS));
    subscriber->connector.soonest_at = subscriber->connector.next_at;
    tell_waiting_threads(subscriber, why);
    if (subscriber->relied_on)
        subscriber->hooks.missed(subscriber->hooks.above);
    subscriber->relied_on = false;
}

/* --------------------------------------------------------------- what is sent */

dibs_status dibs__subscriber_write(struct dibs__subscriber *subscriber, const char *command, const char *arg,
                                   struct dibs__error *error)
{
    const char *words[] = {command, arg, NULL};

    if (dibs__link_say(subscriber->link, words))
        return DIBS_OK;
    return dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a command");
}

/* ------------------------------------------------------------------- driving */

/* After the answer that confirms the subscription, messages may have come as well, so they are taken. */
static void go_on_trying(struct dibs__subscriber *subscriber, int64_t now) DIBS__REQUIRES(dibs__reading_role)
{
    struct dibs__error error = {DIBS_OK, ""};

    if (!dibs__connector_attend(&subscriber->connector, now, DIBS__RECONNECT_LAST_MS, &error))
        return;
    subscriber->link = dibs__connector_take(&subscriber->connector);
    if (!subscriber->link) {
        fail_try(subscriber, &error, now);
        return;
    }
    stand(subscriber, now);
    if (dibs__subscriber_take(subscriber, now, &error) != DIBS_OK)
        lose(subscriber);
}

static bool is_pinged(const struct dibs__subscriber *subscriber)
{
    return atomic_load(&subscriber->last_received_at) == subscriber->pinged_after;
}

static bool ping_is_unanswered(const struct dibs__subscriber *subscriber, int64_t now)
{
    return is_pinged(subscriber) && now >= subscriber->pinged_until;
}

static dibs_status ping_after_silence(struct dibs__subscriber *subscriber, int64_t now, struct dibs__error *error)
{
    int64_t last_received_at = atomic_load(&subscriber->last_received_at);

    if (is_pinged(subscriber) || now < dibs__after_ms(last_received_at, SILENCE_MS))
        return DIBS_OK;
    subscriber->pinged_after = last_received_at;
    subscriber->pinged_until = dibs__after_ms(now, subscriber->endpoint->command_timeout_ms);
    return dibs__subscriber_write(subscriber, "PING", NULL, error);
}

/* Whether the subscription must end, as far as can be known without the reading role. */
static bool is_over(struct dibs__subscriber *subscriber)
{
    return atomic_load_explicit(&subscriber->serial, memory_order_relaxed) == 0 ||
           dibs__link_is_outdated(subscriber->link);
}

static bool must_ask_for_changes(const struct dibs__subscriber *subscriber)
{
    return subscriber->hears_wanted && !subscriber->hears_asked;
}

static dibs_status ask_for_changes(struct dibs__subscriber *subscriber, struct dibs__error *error)
{
    if (!must_ask_for_changes(subscriber))
        return DIBS_OK;
    subscriber->hears_asked = true;
    return dibs__subscriber_write(subscriber, "SUBSCRIBE", DIBS__CHANGES, error);
}

/* False: the link can't be used any more. */
static bool send_what_is_due(struct dibs__subscriber *subscriber, int64_t now)
{
    struct dibs__error error;

    return ping_after_silence(subscriber, now, &error) == DIBS_OK && ask_for_changes(subscriber, &error) == DIBS_OK &&
           dibs__slots_ask(subscriber, now, &error) == DIBS_OK &&
           dibs__link_send_out(subscriber->link, &error) == DIBS_OK;
}

/*
 * Nobody is told why a subscription broke: the next try shows whether there is a reason. Before a PING counts as
 * unanswered, the link is read once more, because the answer may have come since the poll.
 */
static void go_on_listening(struct dibs__subscriber *subscriber, short ready, int64_t now)
    DIBS__REQUIRES(dibs__reading_role)
{
    struct dibs__error error;
    bool good = true;

    if (dibs__link_may_receive(subscriber->link, ready) || ping_is_unanswered(subscriber, now))
        good = dibs__subscriber_read(subscriber, now, &error) == DIBS_OK;
    good = good && send_what_is_due(subscriber, now);
    if (!good || ping_is_unanswered(subscriber, now) || is_over(subscriber))
        lose(subscriber);
}

static void attend_as_reader(struct dibs__subscriber *subscriber, short ready, int64_t now)
{
    dibs__subscriber_begin_reading(subscriber);
    if (subscriber->link)
        go_on_listening(subscriber, ready, now);
    else if (dibs__connector_is_due(&subscriber->connector, false, now))
        go_on_trying(subscriber, now);
    dibs__subscriber_end_reading(subscriber);
}

void dibs__subscriber_attend(struct dibs__subscriber *subscriber, short ready, int64_t now)
{
    bool need = subscriber->link && (is_over(subscriber) || ping_is_unanswered(subscriber, now));

    if (atomic_exchange(&subscriber->slots.lost, false))
        subscriber->hooks.missed(subscriber->hooks.above);
    if (dibs__subscriber_take_reading(subscriber, need, now))
        attend_as_reader(subscriber, ready, now);
    else if (!send_what_is_due(subscriber, now))
        atomic_store(&subscriber->serial, 0);
}

/* When something must be done about the current subscription, whatever its descriptor does. */
static int64_t next_time(struct dibs__subscriber *subscriber)
{
    int64_t due = atomic_load(&subscriber->slots.due);
    int64_t silent = is_pinged(subscriber) ? subscriber->pinged_until
                                           : dibs__after_ms(atomic_load(&subscriber->last_received_at), SILENCE_MS);

    if (is_over(subscriber) || must_ask_for_changes(subscriber) || atomic_load(&subscriber->slots.lost))
        return 0;
    return due < silent ? due : silent;
}

/*
 * Requires a subscription. While the reading role is recalled, nothing is due: the thread that leaves the role wakes
 * the scheduler.
 */
static struct pollfd interest_in_subscription(struct dibs__subscriber *subscriber, int64_t *deadline)
{
    int64_t until = next_time(subscriber);

    subscriber_mutex_lock(&subscriber->mutex);
    enum dibs__role_holder role_holder = subscriber->role_holder;
    int64_t idle_until = subscriber->idle_until;
    subscriber_mutex_unlock(&subscriber->mutex);
    if (role_holder == DIBS__ROLE_HOLDER_THREAD && atomic_load(&subscriber->recalled))
        until = DIBS__NEVER;
    else if (role_holder == DIBS__ROLE_HOLDER_NOBODY && idle_until < until)
        until = idle_until;
    else if (role_holder == DIBS__ROLE_HOLDER_SCHEDULER)
        until = 0;
    *deadline = dibs__earlier(*deadline, until);
    if (role_holder == DIBS__ROLE_HOLDER_POLL)
        return dibs__link_interest(subscriber->link, deadline);
    return subscriber->link->out.used > 0 ? dibs__link_poll(subscriber->link, POLLOUT, deadline)
                                          : (struct pollfd){.fd = -1};
}

struct pollfd dibs__subscriber_interest(struct dibs__subscriber *subscriber, int64_t *deadline)
{
    return subscriber->link ? interest_in_subscription(subscriber, deadline)
                            : dibs__connector_interest(&subscriber->connector, false, deadline);
}

void dibs__subscriber_hurry(struct dibs__subscriber *subscriber)
{
    if (!subscriber->link)
        subscriber->connector.next_at = 0;
}

bool dibs__subscriber_hear_changes(struct dibs__subscriber *subscriber, uint64_t *serial, int64_t *client)
{
    subscriber->hears_wanted = true;
    *serial = dibs__subscriber_serial(subscriber);
    if (!subscriber->link || *serial == 0 || *serial != atomic_load(&subscriber->hears))
        return false;
    *client = subscriber->link->view.id.client;
    return *client > 0;
}
