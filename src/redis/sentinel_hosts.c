#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "redis/sentinel_parts.h"

void dibs__sentinel_host_drop(struct dibs__sentinel_host *host)
{
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): there are as many hosts as are counted */
    dibs__link_free(host->link);
    host->link = NULL;
    dibs__connector_free(&host->connector);
    host->next = DIBS__ASKS_NOTHING;
    host->subscribed = host->switched = host->answered = false;
    host->state = DIBS__SENTINEL_PAUSES;
}

static void free_host(struct dibs__sentinel_host *host)
{
    dibs__sentinel_host_drop(host);
    dibs__endpoint_free(&host->endpoint);
    free(host);
}

/*
 * Makes a sentinel at that host and port, with the account given, and with the rest as in the endpoint `like`. NULL: no
 * memory.
 */
static struct dibs__sentinel_host *new_host(const struct dibs__endpoint *like, const char *name, unsigned port,
                                            const char *user, const char *password)
{
    struct dibs__sentinel_host *host = calloc(1, sizeof *host);
    struct dibs__url url = {0};
    struct dibs__error unused;

    if (!host ||
        dibs__url_at(&url, like->url.tls, user, user && !password ? "" : password, name, port, &unused) != DIBS_OK ||
        !dibs__endpoint_init(&host->endpoint, &url)) {
        dibs__url_free(&url);
        free(host);
        return NULL;
    }
    host->endpoint.transport = like->transport;
    host->endpoint.tls = like->tls;
    host->endpoint.clock = like->clock;
    host->endpoint.connect_timeout_ms = like->connect_timeout_ms;
    host->endpoint.commands = like->commands;
    host->endpoint.errors = like->errors;
    host->next = DIBS__ASKS_NOTHING;
    memcpy(host->endpoint.client_name, like->client_name, sizeof like->client_name);
    return host;
}

bool dibs__sentinel_hosts_init(struct dibs__sentinel_hosts *hosts, const struct dibs__endpoint *master,
                               const char *user, const char *password)
{
    const struct dibs__url *url = &master->url;

    hosts->room = url->host_count + DIBS__SENTINELS_LEARNED;
    hosts->hosts = calloc(hosts->room, sizeof(struct dibs__sentinel_host *));
    for (size_t i = 0; hosts->hosts && i < url->host_count; i++) {
        struct dibs__sentinel_host *host = new_host(master, url->hosts[i].name, url->hosts[i].port, user, password);
        if (!host)
            return false;
        /* All are asked at the same time, for half of the connect timeout; the rest is for the master. */
        host->endpoint.connect_timeout_ms = master->connect_timeout_ms > 1 ? master->connect_timeout_ms / 2 : 1;
        hosts->hosts[hosts->count++] = host;
    }
    hosts->given = hosts->count;
    return hosts->hosts != NULL;
}

void dibs__sentinel_hosts_free(struct dibs__sentinel_hosts *hosts)
{
    for (size_t i = 0; i < hosts->count; i++)
        free_host(hosts->hosts[i]);
    free(hosts->hosts);
    memset(hosts, 0, sizeof *hosts);
}

void dibs__sentinel_hosts_begin(struct dibs__sentinel_hosts *hosts)
{
    for (size_t i = 0; i < hosts->count; i++) {
        hosts->hosts[i]->fault = DIBS__FAULT_NONE;
        hosts->hosts[i]->answered = hosts->hosts[i]->switched = false;
    }
}

/* --------------------------------------------------- sentinels that others name */

/* If memory runs out, the sentinel stays unknown, and the others serve. */
void dibs__sentinel_hosts_learn(struct dibs__sentinel_hosts *hosts, const char *name, unsigned port, uint64_t round)
{
    const struct dibs__endpoint *like = &hosts->hosts[0]->endpoint;

    for (size_t i = 0; i < hosts->count; i++) {
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): there are as many hosts as are counted */
        const struct dibs__host *known = &hosts->hosts[i]->endpoint.url.hosts[0];
        if (known->port == port && strcmp(known->name, name) == 0) {
            hosts->hosts[i]->named = round;
            return;
        }
    }
    struct dibs__sentinel_host *host =
        hosts->count < hosts->room ? new_host(like, name, port, like->url.user, like->url.password) : NULL;
    if (!host)
        return;
    host->named = round;
    hosts->hosts[hosts->count++] = host;
}

void dibs__sentinel_hosts_forget(struct dibs__sentinel_hosts *hosts, uint64_t round)
{
    size_t kept = 0;

    for (size_t i = 0; i < hosts->count; i++) {
        struct dibs__sentinel_host *host = hosts->hosts[i];
        if (i < hosts->given || host->named >= round)
            hosts->hosts[kept++] = host;
        else
            free_host(host);
    }
    hosts->count = kept;
}

bool dibs__sentinel_hosts_copy(struct dibs__sentinel_hosts *out, const struct dibs__sentinel_hosts *hosts,
                               const struct dibs__endpoint *master)
{
    const struct dibs__url *url = &hosts->hosts[0]->endpoint.url;

    *out = (struct dibs__sentinel_hosts){.count = 0};
    if (!dibs__sentinel_hosts_init(out, master, url->user, url->password) || out->count == 0) {
        dibs__sentinel_hosts_free(out);
        return false;
    }
    for (size_t i = 0; i < hosts->count; i++) {
        const struct dibs__host *host = &hosts->hosts[i]->endpoint.url.hosts[0];
        dibs__sentinel_hosts_learn(out, host->name, host->port, 0);
    }
    return true;
}

/* ---------------------------------------------------- why none names the master */

static const struct {
    const char *text;
    dibs_status status;
} faults[] = {
    [DIBS__FAULT_NONE] = {"was not asked", DIBS_UNAVAILABLE},
    [DIBS__FAULT_UNREACHED] = {"can't be reached", DIBS_UNAVAILABLE},
    [DIBS__FAULT_SILENT] = {"does not answer", DIBS_UNAVAILABLE},
    [DIBS__FAULT_DENIED] = {"refused the credentials of the sentinels", DIBS_DENIED},
    [DIBS__FAULT_UNKNOWN] = {"does not know that name", DIBS_UNAVAILABLE},
    [DIBS__FAULT_NO_SENTINEL] = {"does not answer as a sentinel does", DIBS_UNAVAILABLE},
    [DIBS__FAULT_NO_MEMORY] = {"was not asked, for lack of memory or descriptors", DIBS_NO_MEMORY},
};

static const char denied_without[] = "refused a client without credentials for the sentinels (sentinel_password)";

dibs_status dibs__sentinel_hosts_tell(const struct dibs__sentinel_hosts *hosts, const char *master,
                                      struct dibs__error *error)
{
    char text[DIBS__DETAIL_MAX];
    dibs_status status = DIBS_UNAVAILABLE;
    size_t used = 0;

    text[0] = '\0';
    for (size_t i = 0; i < hosts->count; i++) {
        const struct dibs__sentinel_host *host = hosts->hosts[i];
        const struct dibs__url *url = &host->endpoint.url;
        bool denied = host->fault == DIBS__FAULT_DENIED, without = !url->user && !url->password;
        int more = snprintf(text + used, sizeof text - used, "%s%s %s%s", i ? ", " : "", url->shown,
                            denied && without ? denied_without : faults[host->fault].text,
                            denied && url->tls ? ", or one side's certificate is not accepted" : "");
        used += (size_t)more < sizeof text - used ? (size_t)more : sizeof text - used - 1;
        if (faults[host->fault].status != DIBS_UNAVAILABLE)
            status = faults[host->fault].status;
    }
    return dibs__error_set(error, status, "no sentinel names the master %.64s: %s", master, text);
}
