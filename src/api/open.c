#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/check.h"
#include "core/runtime.h"
#include "store/store.h"

#define SPIN_MOST_US 10000u
#define KEEP_MOST_MS 60000u
#define LABEL_MAX 48
#define DEFAULT_LEASE_MS 30000
#define URLS_MAX 15
#define RESERVED_KEYS "dibs:"
#define DEFAULT_URL "redis://127.0.0.1:6379"
#define STRINGIFY(x) #x
#define VERSION(a, b, c) STRINGIFY(a) "." STRINGIFY(b) "." STRINGIFY(c)

const char *dibs_version(void)
{
    return VERSION(DIBS_VERSION_MAJOR, DIBS_VERSION_MINOR, DIBS_VERSION_PATCH);
}

/* -------------------------------------------------------------------- checks */

static bool check_label(const char *label)
{
    size_t size = strlen(label);

    if (size < 1 || size > LABEL_MAX)
        return DIBS__INVALID("label must have from 1 to 48 bytes");
    for (const char *c = label; *c; c++)
        if (*c < ' ' || *c > '~')
            return DIBS__INVALID("label has a byte that does not print");
    return true;
}

static bool check_prefix(const char *prefix)
{
    if (strncmp(prefix, RESERVED_KEYS, strlen(RESERVED_KEYS)) == 0)
        return DIBS__INVALID("key_prefix begins with \"dibs:\", which is kept for what dibs itself stores");
    return strlen(prefix) <= DIBS__PREFIX_MAX || DIBS__INVALID("key_prefix is longer than 512 bytes");
}

static bool check_times(const dibs_config *config)
{
    uint32_t lease_ms = config->lease_ms ? config->lease_ms : DEFAULT_LEASE_MS;

    if (!dibs__check_lease("lease_ms", lease_ms))
        return false;
    if (config->renew_ms > lease_ms / 2)
        return DIBS__INVALID("renew_ms is %u, more than half of lease_ms, %u", config->renew_ms, lease_ms);
    if (config->spin_us > SPIN_MOST_US && config->spin_us != DIBS_NO_SPIN)
        return DIBS__INVALID("spin_us is %u; at most %u", config->spin_us, SPIN_MOST_US);
    if (config->keep_ms > KEEP_MOST_MS)
        return DIBS__INVALID("keep_ms is %u; at most %u", config->keep_ms, KEEP_MOST_MS);
    return true;
}

static bool check_config(const dibs_config *config)
{
    for (size_t i = 0; i < sizeof config->reserved / sizeof config->reserved[0]; i++)
        if (config->reserved[i] != 0)
            return DIBS__INVALID("a reserved field of the configuration is not zero");
    if (config->durable > 1)
        return DIBS__INVALID("durable is neither 0 nor 1");
    return (!config->label || check_label(config->label)) &&
           (!config->key_prefix || check_prefix(config->key_prefix)) && check_times(config);
}

static bool check_url_count(const char *where, size_t count)
{
    if (count % 2 == 0)
        return DIBS__INVALID("%s has %zu URLs: one store has one URL, a quorum an odd number", where, count);
    return count <= URLS_MAX || DIBS__INVALID("%s has %zu URLs: at most %d", where, count, URLS_MAX);
}

/* Whether the scheme of one of the URLs begins with `scheme`. */
static bool any_url_begins(const struct dibs__settings *settings, const char *scheme)
{
    for (size_t i = 0; i < settings->url_count; i++)
        if (strncasecmp(settings->urls[i], scheme, strlen(scheme)) == 0)
            return true;
    return false;
}

static bool only_with(bool any, const char *what, const char *field, const char *value)
{
    return any || !value || DIBS__INVALID("%s is set, but there is no %s", field, what);
}

/* A client's certificate is of no use without its key, and vice versa. */
static bool check_tls(const dibs_config *config)
{
    if (!config->tls_cert_file != !config->tls_key_file)
        return DIBS__INVALID(config->tls_cert_file ? "tls_cert_file is set, but tls_key_file is not"
                                                   : "tls_key_file is set, but tls_cert_file is not");
    return !config->tls_server_name || *config->tls_server_name || DIBS__INVALID("tls_server_name is empty");
}

static bool check_access(const struct dibs__settings *settings, const dibs_config *config)
{
    static const char tls[] = "URL with TLS", sentinel[] = "redis-sentinel:// URL";
    bool any_tls = any_url_begins(settings, "rediss");
    bool any_sentinel = any_url_begins(settings, "redis-sentinel:") || any_url_begins(settings, "rediss-sentinel:");

    return only_with(any_tls, tls, "tls_ca_file", config->tls_ca_file) &&
           only_with(any_tls, tls, "tls_cert_file", config->tls_cert_file) &&
           only_with(any_tls, tls, "tls_key_file", config->tls_key_file) &&
           only_with(any_tls, tls, "tls_server_name", config->tls_server_name) &&
           only_with(any_sentinel, sentinel, "sentinel_user", config->sentinel_user) &&
           only_with(any_sentinel, sentinel, "sentinel_password", config->sentinel_password) && check_tls(config);
}

/* ------------------------------------------------------------------ settings */

static uint32_t or_default(uint32_t value, uint32_t standard)
{
    return value ? value : standard;
}

static dibs_status no_memory(void)
{
    return dibs__fail(DIBS_NO_MEMORY, "no memory for a runtime");
}

/* Takes the URLs from $DIBS_URL, which are separated by white space, or else the default URL. */
static dibs_status urls_from_environment(struct dibs__settings *settings)
{
    static const char blanks[] = " \t\r\n";
    const char *text = getenv("DIBS_URL");
    size_t count = 0;

    for (text = text ? text + strspn(text, blanks) : ""; *text; text += strspn(text, blanks)) {
        size_t size = strcspn(text, blanks);
        if (!dibs__settings_add_url(settings, text, size))
            return no_memory();
        text += size;
        count++;
    }
    if (count > 0)
        return check_url_count("$DIBS_URL", count) ? DIBS_OK : DIBS_INVALID;
    return dibs__settings_add_url(settings, DEFAULT_URL, strlen(DEFAULT_URL)) ? DIBS_OK : no_memory();
}

static dibs_status find_urls(struct dibs__settings *settings, const dibs_config *config)
{
    if (!config->urls && config->url_count == 0)
        return urls_from_environment(settings);
    if (!config->urls || config->url_count == 0)
        return dibs__fail(DIBS_INVALID,
                          config->urls ? "url_count is 0, but urls is set" : "urls is NULL, but url_count is not 0");
    if (!check_url_count("urls", config->url_count))
        return DIBS_INVALID;
    for (size_t i = 0; i < config->url_count; i++) {
        if (!config->urls[i])
            return dibs__fail(DIBS_INVALID, "urls[%zu] is NULL", i);
        if (!dibs__settings_add_url(settings, config->urls[i], strlen(config->urls[i])))
            return no_memory();
    }
    return DIBS_OK;
}

/* The program's name, with bytes that do not print replaced. NULL: no memory. */
static char *default_label(void)
{
#ifdef __GLIBC__
    const char *name = program_invocation_short_name;
#elif defined(__APPLE__)
    const char *name = getprogname();
#else
    const char *name = "";
#endif
    char *label = strndup(name && *name ? name : "dibs", LABEL_MAX);

    for (char *c = label; c && *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '-';
    return label;
}

/* A copy of a text that may be missing. False: no memory. */
static bool copy_text(char **out, const char *text)
{
    *out = text ? strdup(text) : NULL;
    return *out || !text;
}

/* False: no memory. */
static bool copy_access(struct dibs__settings *out, const dibs_config *config)
{
    struct dibs__access *access = calloc(1, sizeof *access);

    out->access = access;
    return access && copy_text(&access->tls_ca_file, config->tls_ca_file) &&
           copy_text(&access->tls_cert_file, config->tls_cert_file) &&
           copy_text(&access->tls_key_file, config->tls_key_file) &&
           copy_text(&access->tls_server_name, config->tls_server_name) &&
           copy_text(&access->sentinel_user, config->sentinel_user) &&
           copy_text(&access->sentinel_password, config->sentinel_password);
}

static dibs_status make_settings(struct dibs__settings *out, const dibs_config *config)
{
    dibs_status status = find_urls(out, config);

    if (status != DIBS_OK)
        return status;
    if (!check_access(out, config))
        return DIBS_INVALID;
    out->key_prefix = strdup(config->key_prefix ? config->key_prefix : "lock:");
    out->label = config->label ? strdup(config->label) : default_label();
    if (out->key_prefix && strncmp(RESERVED_KEYS, out->key_prefix, strlen(out->key_prefix)) == 0)
        out->reserved = &RESERVED_KEYS[strlen(out->key_prefix)];
    out->lease_ms = or_default(config->lease_ms, DEFAULT_LEASE_MS);
    out->renew_ms = config->renew_ms;
    out->connect_timeout_ms = or_default(config->connect_timeout_ms, 1000);
    out->durable = config->durable == 1;
    out->command_timeout_ms = or_default(config->command_timeout_ms, out->durable ? 3000 : 1000);
    out->outage_ms = or_default(config->outage_ms, 5000);
    out->handoff_ms = or_default(config->handoff_ms, 10);
    out->spin_us = config->spin_us == DIBS_NO_SPIN ? 0 : or_default(config->spin_us, 100);
    out->keep_ms = config->keep_ms;
    out->min_replicas = config->min_replicas;
    out->replica_timeout_ms = or_default(config->replica_timeout_ms, out->durable ? 2500 : 500);
    out->on_event = config->on_event;
    out->on_event_arg = config->on_event_arg;
    return out->key_prefix && out->label && copy_access(out, config) ? DIBS_OK : no_memory();
}

/* --------------------------------------------------------------------- doors */

dibs_status dibs_open(dibs_runtime **out, const dibs_config *config)
{
    static const dibs_config defaults;
    struct dibs__settings settings = {0};
    struct dibs__error error;
    int cancel_state;

    if (!out)
        return dibs__fail(DIBS_INVALID, "out is NULL");
    *out = NULL;
    config = config ? config : &defaults;
    if (!check_config(config))
        return DIBS_INVALID;
    dibs_status status = make_settings(&settings, config);
    if (status != DIBS_OK) {
        dibs__settings_free(&settings);
        return status;
    }
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    status = dibs__runtime_open(out, &settings, &dibs__system_clock, &error);
    pthread_setcancelstate(cancel_state, NULL);
    return dibs__return(status, &error);
}

void dibs_shutdown(dibs_runtime *rt)
{
    if (rt)
        dibs__runtime_shutdown(rt);
}

void dibs_close(dibs_runtime *rt)
{
    if (rt)
        dibs__runtime_close(rt);
}
