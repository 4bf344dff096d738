/* Records the events of a runtime. */
#include "support/events.h"

#include "support/test.h"

void events_init(events *e)
{
    memset(e, 0, sizeof *e);
    pthread_mutex_init(&e->mutex, NULL);
}

void events_forget(events *e)
{
    pthread_mutex_lock(&e->mutex);
    e->count = 0;
    pthread_mutex_unlock(&e->mutex);
}

void events_destroy(events *e)
{
    pthread_mutex_destroy(&e->mutex);
}

void events_record(const dibs_event *event, void *arg)
{
    events *e = arg;

    pthread_mutex_lock(&e->mutex);
    if (e->count < EVENTS_MAX) {
        recorded_event *r = &e->list[e->count];

        r->kind = event->kind;
        r->fence = event->fence;
        r->thread = pthread_self();
        snprintf(r->name, sizeof r->name, "%s", event->name ? event->name : "");
        snprintf(r->detail, sizeof r->detail, "%s", event->detail ? event->detail : "(null)");
    }
    e->count++;
    pthread_mutex_unlock(&e->mutex);
}

/* Requires e->mutex. */
static unsigned kept(const events *e)
{
    return e->count < EVENTS_MAX ? e->count : EVENTS_MAX;
}

static bool matches(const recorded_event *r, dibs_event_kind kind, const char *name)
{
    return r->kind == kind && (!name || strcmp(r->name, name) == 0);
}

int events_find(events *e, dibs_event_kind kind, const char *name)
{
    int found = -1;

    pthread_mutex_lock(&e->mutex);
    for (unsigned i = 0; i < kept(e) && found < 0; i++)
        if (matches(&e->list[i], kind, name))
            found = (int)i;
    pthread_mutex_unlock(&e->mutex);
    return found;
}

unsigned events_count(events *e, dibs_event_kind kind, const char *name)
{
    unsigned count = 0;

    pthread_mutex_lock(&e->mutex);
    for (unsigned i = 0; i < kept(e); i++)
        count += matches(&e->list[i], kind, name) ? 1 : 0;
    pthread_mutex_unlock(&e->mutex);
    return count;
}

recorded_event events_await(events *e, dibs_event_kind kind, const char *name)
{
    recorded_event copy = {.kind = kind};

    await_or_say(events_find(e, kind, name) >= 0, "event %d of %s does not come", (int)kind, name ? name : "any");
    pthread_mutex_lock(&e->mutex);
    for (unsigned i = kept(e); i-- > 0;)
        if (matches(&e->list[i], kind, name))
            copy = e->list[i]; /* the first one is looked at last */
    pthread_mutex_unlock(&e->mutex);
    return copy;
}
