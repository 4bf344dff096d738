#include "ways/zookeeper.h"

#include <stdlib.h>
#include <string.h>

uint64_t zk_number(const char *node)
{
    return strtoull(strrchr(node, '-') + 1, NULL, 10);
}

#if defined(DEMO_ZOOKEEPER)
#define THREADED /* the functions that wait for their answer */
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <zookeeper/zookeeper.h>

#include "race/race.h"
#include "support/common/timing.h"

enum { ZK_PATH = 200, HANDLES = 16, LOOK_MS = 100, ANSWER_MS = 5000, CLEAN_MS = 500, CLEAN_SESSION_MS = 5000 };

/* Rings once the node that is watched has gone, or the session has ended. */
struct bell {
    struct bell *next; /* guarded by the session's mutex */
    pthread_mutex_t mutex;
    pthread_cond_t rung;
    bool has_rung; /* guarded by mutex */
};

/* Of one process. No thread has both kinds of mutex. Handles stay open: a thread may still be in one that has ended. */
struct session {
    int silence_ms;     /* read-only: for so long may the process be silent */
    unsigned answer_ms; /* read-only: for so long may the servers be silent */
    pthread_mutex_t mutex;
    pthread_cond_t changed;     /* the state of a handle */
    zhandle_t *last;            /* guarded by mutex: the one in use */
    zhandle_t *opened[HANDLES]; /* guarded by mutex */
    unsigned count;             /* guarded by mutex: of `opened` */
    struct bell *bells;         /* guarded by mutex */
};

static const char *servers(void)
{
    const char *named = getenv("DIBS_ZOOKEEPER");

    return named && *named ? named : NULL;
}

const char *zk_missing(void)
{
    const char *why = getenv("DIBS_NO_ZOOKEEPER");

    if (servers())
        return NULL;
    return why ? why : "sh demo/run --all starts a ZooKeeper server, or $DIBS_ZOOKEEPER names one";
}

/* ----------------------------------------------------------------- waiting */

/* Waits for at most so long, with the mutex held; may return early. */
static void wait_for(pthread_cond_t *condition, pthread_mutex_t *mutex, unsigned ms)
{
    struct timespec end;

    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_nsec += ms * 1000000L;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    pthread_cond_timedwait(condition, mutex, &end);
}

/* Called by a thread of the library's own. */
static void session_changed(zhandle_t *zk, int type, int state, const char *path, void *arg)
{
    struct session *session = arg;

    (void)zk, (void)type, (void)state, (void)path;
    pthread_mutex_lock(&session->mutex);
    pthread_cond_broadcast(&session->changed);
    pthread_mutex_unlock(&session->mutex);
}

/* Called by a thread of the library's own. */
static void ring(zhandle_t *zk, int type, int state, const char *path, void *arg)
{
    struct bell *bell = arg;

    (void)zk, (void)path;
    if (type == ZOO_SESSION_EVENT && state != ZOO_EXPIRED_SESSION_STATE)
        return;
    pthread_mutex_lock(&bell->mutex);
    bell->has_rung = true;
    pthread_cond_signal(&bell->rung);
    pthread_mutex_unlock(&bell->mutex);
}

static bool has_rung(struct bell *bell)
{
    bool has;

    pthread_mutex_lock(&bell->mutex);
    if (!bell->has_rung)
        wait_for(&bell->rung, &bell->mutex, LOOK_MS);
    has = bell->has_rung;
    bell->has_rung = false;
    pthread_mutex_unlock(&bell->mutex);
    return has;
}

/* The racer's. It stays until no more events can come. */
static struct bell *bell_of(struct racer *me)
{
    struct session *session = me->crew->own;
    struct bell *bell = me->own ? me->own : calloc(1, sizeof *bell);

    if (!bell)
        way_fail("out of memory");
    if (me->own)
        return bell;
    pthread_mutex_init(&bell->mutex, NULL);
    pthread_cond_init(&bell->rung, NULL);
    pthread_mutex_lock(&session->mutex);
    bell->next = session->bells;
    session->bells = bell;
    pthread_mutex_unlock(&session->mutex);
    me->own = bell;
    return bell;
}

/* ---------------------------------------------------------------- sessions */

/* Requires session->mutex. */
static void open_handle(struct session *session)
{
    if (session->count == HANDLES)
        return;
    session->last = zookeeper_init(servers(), session_changed, session->silence_ms, NULL, session, 0);
    if (session->last)
        session->opened[session->count++] = session->last;
}

/* Where the session has ended, begins a new one. NULL: no server answers. */
static zhandle_t *connected(struct session *session)
{
    uint64_t limit = clock_ns() + session->answer_ms * UINT64_C(1000000);
    zhandle_t *zk = NULL;

    pthread_mutex_lock(&session->mutex);
    while (clock_ns() < limit) {
        int state = session->last ? zoo_state(session->last) : ZOO_EXPIRED_SESSION_STATE;
        zk = state == ZOO_CONNECTED_STATE ? session->last : NULL;
        if (zk)
            break;
        if (state == ZOO_EXPIRED_SESSION_STATE)
            open_handle(session);
        wait_for(&session->changed, &session->mutex, LOOK_MS);
    }
    pthread_mutex_unlock(&session->mutex);
    return zk;
}

static void open_session(struct session *session, unsigned silence_ms, unsigned answer_ms)
{
    *session = (struct session){.silence_ms = (int)silence_ms, .answer_ms = answer_ms};
    pthread_mutex_init(&session->mutex, NULL);
    pthread_cond_init(&session->changed, NULL);
    zoo_set_debug_level((ZooLogLevel)0);
}

static void close_session(struct session *session)
{
    for (unsigned i = 0; i < session->count; i++)
        zookeeper_close(session->opened[i]);
    while (session->bells) {
        struct bell *bell = session->bells;
        session->bells = bell->next;
        free(bell);
    }
}

/* ---------------------------------------------------------------- requests */

/* The answer did not come: the connection broke, or the session has ended. */
static bool lost(int status)
{
    return status == ZCONNECTIONLOSS || status == ZOPERATIONTIMEOUT || status == ZSESSIONEXPIRED ||
           status == ZINVALIDSTATE || status == ZCLOSING;
}

/* For the racer's next request. */
static zhandle_t *ready(struct racer *me)
{
    zhandle_t *zk = connected(me->crew->own);

    if (!zk)
        way_fail("ZooKeeper at %s does not answer", servers());
    return zk;
}

/* Counts a request once it was answered, however often it had to be sent. Returns whether it must be sent again. */
static bool again(struct racer *me, int status)
{
    if (lost(status))
        return true;
    way_commands(me->crew, 1);
    return false;
}

static void path_of(const struct racer *me, const char *node, char path[ZK_PATH])
{
    snprintf(path, ZK_PATH, "/%s%s%s", me->crew->name, *node ? "/" : "", node);
}

struct zk_nodes zk_nodes(struct racer *me)
{
    struct String_vector found = {0, NULL};
    char path[ZK_PATH];
    int status;

    path_of(me, "", path);
    do {
        status = zoo_get_children(ready(me), path, 0, &found);
    } while (again(me, status));
    if (status != ZOK)
        way_fail("ZooKeeper: the nodes of %s can't be read: %s", path, zerror(status));
    return (struct zk_nodes){found.count, found.data};
}

void zk_free(struct zk_nodes *nodes)
{
    deallocate_String_vector(&(struct String_vector){nodes->count, nodes->names});
}

/* Whether a request whose answer was lost has created the node. */
static bool was_created(struct racer *me, const char *prefix, char node[ZK_NODE])
{
    struct zk_nodes nodes = zk_nodes(me);
    bool found = false;

    for (int i = 0; i < nodes.count && !found; i++) {
        found = strncmp(nodes.names[i], prefix, strlen(prefix)) == 0;
        snprintf(node, ZK_NODE, "%s", nodes.names[i]);
    }
    zk_free(&nodes);
    return found;
}

void zk_create(struct racer *me, char node[ZK_NODE])
{
    char prefix[ZK_NODE], path[ZK_PATH], created[ZK_PATH];
    int status;

    snprintf(prefix, sizeof prefix, "racer%u-", me->number);
    path_of(me, prefix, path);
    do {
        status = zoo_create(ready(me), path, "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL | ZOO_SEQUENCE, created,
                            sizeof created);
        if (lost(status) && was_created(me, prefix, node))
            return;
    } while (again(me, status));
    if (status != ZOK)
        way_fail("ZooKeeper: %s can't be created: %s", path, zerror(status));
    snprintf(node, ZK_NODE, "%s", strrchr(created, '/') + 1);
}

bool zk_wait(struct racer *me, const char *node)
{
    struct bell *bell = bell_of(me);
    char path[ZK_PATH];
    struct Stat stat;
    int status;

    path_of(me, node, path);
    do {
        status = zoo_wexists(ready(me), path, ring, bell, &stat);
    } while (again(me, status));
    if (status != ZOK && status != ZNONODE)
        way_fail("ZooKeeper: %s can't be watched: %s", path, zerror(status));
    if (status == ZNONODE)
        return true;
    way_point(me, "watching");
    while (!has_rung(bell)) {
        if (!connected(me->crew->own))
            way_fail("ZooKeeper at %s does not answer", servers());
        if (!way_retry(me, 0))
            return false;
    }
    return true;
}

bool zk_delete(struct racer *me, const char *node)
{
    zhandle_t *zk = NULL, *before;
    char path[ZK_PATH];
    int status;

    path_of(me, node, path);
    do {
        before = zk;
        zk = ready(me);
        status = zoo_delete(zk, path, -1);
    } while (again(me, status));
    if (status != ZOK && status != ZNONODE)
        way_fail("ZooKeeper: %s can't be deleted: %s", path, zerror(status));
    return status == ZOK || zk == before; /* the same session: the request before did it, and its answer was lost */
}

unsigned zk_session_ms(struct racer *me)
{
    zhandle_t *zk = connected(me->crew->own);

    return zk ? (unsigned)zoo_recv_timeout(zk) : me->lease_ms;
}

/* ------------------------------------------------------------- for struct way */

bool zk_set_up(struct race *race)
{
    struct session session;
    char path[ZK_PATH];
    zhandle_t *zk;
    int status = ZCONNECTIONLOSS;
    bool repeated = false;

    snprintf(path, sizeof path, "/%s", race->name);
    open_session(&session, CLEAN_SESSION_MS, ANSWER_MS);
    while (lost(status) && (zk = connected(&session))) {
        status = zoo_create(zk, path, "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0);
        if (status == ZNODEEXISTS && repeated) /* the answer to the request before was lost */
            status = ZOK;
        repeated = true;
    }
    close_session(&session);
    if (lost(status))
        fprintf(stderr, "ZooKeeper at %s does not answer\n", servers());
    else if (status != ZOK)
        fprintf(stderr, "ZooKeeper: %s can't be created: %s\n", path, zerror(status));
    return status == ZOK;
}

/* Where no server answers, nothing can be removed. */
void zk_tear_down(struct race *race)
{
    struct String_vector left = {0, NULL};
    struct session session;
    char path[ZK_PATH];
    zhandle_t *zk;

    snprintf(path, sizeof path, "/%s", race->name);
    open_session(&session, CLEAN_SESSION_MS, CLEAN_MS);
    zk = connected(&session);
    if (zk && zoo_get_children(zk, path, 0, &left) == ZOK) {
        for (int i = 0; i < left.count; i++) {
            char node[ZK_PATH * 2];
            snprintf(node, sizeof node, "%s/%s", path, left.data[i]);
            zoo_delete(zk, node, -1);
        }
        deallocate_String_vector(&left);
        zoo_delete(zk, path, -1);
    }
    close_session(&session);
}

void zk_prepare(struct crew *crew)
{
    static struct session own;

    open_session(&own, crew->lease_ms, ANSWER_MS);
    if (!connected(&own))
        way_fail("ZooKeeper at %s does not answer", servers());
    crew->own = &own;
}

void zk_finish(struct crew *crew)
{
    close_session(crew->own);
}
#else
const char *zk_missing(void)
{
    const char *why = getenv("DIBS_NO_ZOOKEEPER");

    return why ? why : "libzookeeper was missing when this was built; sh demo/run --all installs it";
}

/* None of them is called. */
bool zk_set_up(struct race *race)
{
    (void)race;
    return false;
}

void zk_tear_down(struct race *race)
{
    (void)race;
}

void zk_prepare(struct crew *crew)
{
    (void)crew;
}

void zk_finish(struct crew *crew)
{
    (void)crew;
}

void zk_create(struct racer *me, char node[ZK_NODE])
{
    (void)me;
    node[0] = '\0';
}

struct zk_nodes zk_nodes(struct racer *me)
{
    (void)me;
    return (struct zk_nodes){0, NULL};
}

void zk_free(struct zk_nodes *nodes)
{
    (void)nodes;
}

bool zk_wait(struct racer *me, const char *node)
{
    (void)me, (void)node;
    return false;
}

bool zk_delete(struct racer *me, const char *node)
{
    (void)me, (void)node;
    return false;
}

unsigned zk_session_ms(struct racer *me)
{
    return me->lease_ms;
}
#endif
