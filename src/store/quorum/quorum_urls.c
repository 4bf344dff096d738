/* Whether each URL of a quorum is one master, and comes once. */
#include <string.h>
#include <strings.h>

#include "redis/url.h"
#include "store/quorum/quorum_parts.h"

static bool is_memory(const char *url)
{
    return strncasecmp(url, "mem:", 4) == 0;
}

static bool same_text(const char *one, const char *other)
{
    return one && other && strcasecmp(one, other) == 0;
}

/* Two databases of one server count as the same: they are not independent. */
static bool is_same_server(const struct dibs__url *one, const struct dibs__url *other)
{
    if (one->path || other->path)
        return one->path && other->path && strcmp(one->path, other->path) == 0;
    return one->hosts[0].port == other->hosts[0].port && same_text(one->hosts[0].name, other->hosts[0].name);
}

/* A URL mem: without a name is another store each time. */
static bool is_same_store(const char *one, const char *other)
{
    struct dibs__url a, b;
    struct dibs__error unused;
    bool same = false;

    if (is_memory(one) || is_memory(other))
        return is_memory(one) && is_memory(other) && one[4] && strcmp(one + 4, other + 4) == 0;
    if (dibs__url_parse(&a, one, &unused) != DIBS_OK)
        return false;
    if (dibs__url_parse(&b, other, &unused) == DIBS_OK) {
        same = is_same_server(&a, &b);
        dibs__url_free(&b);
    }
    dibs__url_free(&a);
    return same;
}

static dibs_status check_url(const struct dibs__store_config *config, size_t i, struct dibs__error *error)
{
    struct dibs__url url;
    struct dibs__error its;

    if (!is_memory(config->urls[i])) {
        if (dibs__url_parse(&url, config->urls[i], &its) != DIBS_OK)
            return dibs__error_set(error, its.status, "urls[%zu]: %s", i, its.detail);
        enum dibs__url_kind kind = url.kind;
        dibs__url_free(&url);
        if (kind != DIBS__URL_SERVER)
            return dibs__error_set(error, DIBS_INVALID, "urls[%zu]: a member of a quorum is one master, and no %s", i,
                                   kind == DIBS__URL_SENTINEL ? "Sentinel" : "cluster");
    }
    for (size_t before = 0; before < i; before++)
        if (is_same_store(config->urls[before], config->urls[i]))
            return dibs__error_set(error, DIBS_INVALID, "urls[%zu] and urls[%zu] are the same master", before, i);
    return DIBS_OK;
}

dibs_status dibs__quorum_check_urls(const struct dibs__store_config *config, struct dibs__error *error)
{
    dibs_status status = DIBS_OK;

    if (config->url_count > DIBS__MEMBERS_MAX || config->url_count % 2 == 0)
        return dibs__error_set(error, DIBS_INVALID, "a quorum has an odd number of masters, at most %d",
                               DIBS__MEMBERS_MAX);
    for (size_t i = 0; i < config->url_count && status == DIBS_OK; i++)
        status = check_url(config, i, error);
    return status;
}
