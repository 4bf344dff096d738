#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/check.h"
#include "core/runtime.h"
#include "store/store.h"

#define SPIN_MOST_US 10000u
#define LABEL_MAX 48
#define RESERVED_KEYS "dibs:"
#define DEFAULT_URL "redis://127.0.0.1:6379"
#define STRINGIFY(x) #x
#define VERSION(a, b, c) STRINGIFY(a) "." STRINGIFY(b) "." STRINGIFY(c)

const char *dibs_version(void)
{
    return VERSION(DIBS_VERSION_MAJOR, DIBS_VERSION_MINOR, DIBS_VERSION_PATCH);
}

const char *dibs_last_error(void)
{
    return dibs__last_error();
}

/* -------------------------------------------------------------------- checks */

static bool invalid(const char *sentence)
{
    dibs__fail(DIBS_INVALID, "%s", sentence);
    return false;
}

static bool check_label(const char *label)
{
    size_t size = strlen(label);

    if (size < 1 || size > LABEL_MAX)
        return invalid("label must have from 1 to 48 bytes");
    for (const char *c = label; *c; c++)
        if (*c < ' ' || *c > '~')
            return invalid("label has a byte that does not print");
    return true;
}

static bool check_prefix(const char *prefix)
{
    if (strncmp(prefix, RESERVED_KEYS, strlen(RESERVED_KEYS)) == 0)
        return invalid("key_prefix begins with \"dibs:\", which is kept for what dibs itself stores");
    return strlen(prefix) <= DIBS__PREFIX_MAX || invalid("key_prefix is longer than 512 bytes");
}

static bool check_times(const dibs_config *config)
{
    uint32_t lease_ms = config->lease_ms ? config->lease_ms : 30000;

    if (!dibs__check_lease("lease_ms", lease_ms))
        return false;
    if (config->renew_ms > lease_ms / 2) {
        dibs__fail(DIBS_INVALID, "renew_ms is %u, more than half of lease_ms, %u", config->renew_ms, lease_ms);
        return false;
    }
    if (config->spin_us > SPIN_MOST_US && config->spin_us != DIBS_NO_SPIN) {
        dibs__fail(DIBS_INVALID, "spin_us is %u; at most %u", config->spin_us, SPIN_MOST_US);
        return false;
    }
    return true;
}

static bool only_with(const char *what, const char *field, const char *value)
{
    if (value)
        dibs__fail(DIBS_INVALID, "%s is set, but there is no %s", field, what);
    return !value;
}

static bool check_config(const dibs_config *config)
{
    for (size_t i = 0; i < sizeof config->reserved / sizeof config->reserved[0]; i++)
        if (config->reserved[i] != 0)
            return invalid("a reserved field of the configuration is not zero");
    if (config->reserved_half != 0)
        return invalid("a reserved field of the configuration is not zero");
    return only_with("URL with TLS", "tls_ca_file", config->tls_ca_file) &&
           only_with("URL with TLS", "tls_cert_file", config->tls_cert_file) &&
           only_with("URL with TLS", "tls_key_file", config->tls_key_file) &&
           only_with("URL with TLS", "tls_server_name", config->tls_server_name) &&
           only_with("redis-sentinel:// URL", "sentinel_user", config->sentinel_user) &&
           only_with("redis-sentinel:// URL", "sentinel_password", config->sentinel_password) &&
           (!config->label || check_label(config->label)) &&
           (!config->key_prefix || check_prefix(config->key_prefix)) && check_times(config);
}

static bool check_url_count(const char *where, size_t count)
{
    if (count == 1)
        return true;
    if (count % 2 == 0)
        dibs__fail(DIBS_INVALID, "%s: %zu URLs; one store has one, a quorum an odd number", where, count);
    else
        dibs__fail(DIBS_INVALID, "%s: %zu URLs; a quorum of stores is not supported by this version of dibs", where,
                   count);
    return false;
}

/* ------------------------------------------------------------------ settings */

static uint32_t or_default(uint32_t value, uint32_t standard)
{
    return value ? value : standard;
}

/* A copy of the only word of $DIBS_URL, or of the default. */
static dibs_status url_from_environment(char **out)
{
    static const char blanks[] = " \t\r\n";
    const char *text = getenv("DIBS_URL");
    const char *word = NULL;
    size_t count = 0, size = 0;

    for (text = text ? text + strspn(text, blanks) : ""; *text; text += strspn(text, blanks)) {
        word = text;
        size = strcspn(text, blanks);
        text += size;
        count++;
    }
    if (count > 0 && !check_url_count("$DIBS_URL", count))
        return DIBS_INVALID;
    *out = count ? strndup(word, size) : strdup(DEFAULT_URL);
    return *out ? DIBS_OK : dibs__fail(DIBS_NO_MEMORY, "no memory for a runtime");
}

static dibs_status find_url(char **out, const dibs_config *config)
{
    if (!config->urls && config->url_count == 0)
        return url_from_environment(out);
    if (!config->urls || config->url_count == 0)
        return dibs__fail(DIBS_INVALID,
                          config->urls ? "url_count is 0, but urls is set" : "urls is NULL, but url_count is not 0");
    if (!check_url_count("urls", config->url_count))
        return DIBS_INVALID;
    if (!config->urls[0])
        return dibs__fail(DIBS_INVALID, "urls[0] is NULL");
    *out = strdup(config->urls[0]);
    return *out ? DIBS_OK : dibs__fail(DIBS_NO_MEMORY, "no memory for a runtime");
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

static dibs_status make_settings(struct dibs__settings *out, const dibs_config *config)
{
    dibs_status status = find_url(&out->url, config);

    if (status != DIBS_OK)
        return status;
    out->key_prefix = strdup(config->key_prefix ? config->key_prefix : "lock:");
    out->label = config->label ? strdup(config->label) : default_label();
    if (out->key_prefix && strncmp(RESERVED_KEYS, out->key_prefix, strlen(out->key_prefix)) == 0)
        out->reserved = &RESERVED_KEYS[strlen(out->key_prefix)];
    out->lease_ms = or_default(config->lease_ms, 30000);
    out->renew_ms = config->renew_ms;
    out->connect_timeout_ms = or_default(config->connect_timeout_ms, 1000);
    out->command_timeout_ms = or_default(config->command_timeout_ms, 1000);
    out->outage_ms = or_default(config->outage_ms, 5000);
    out->handoff_ms = or_default(config->handoff_ms, 10);
    out->spin_us = config->spin_us == DIBS_NO_SPIN ? 0 : or_default(config->spin_us, 100);
    out->min_replicas = config->min_replicas;
    out->replica_timeout_ms = or_default(config->replica_timeout_ms, 500);
    out->on_event = config->on_event;
    out->on_event_arg = config->on_event_arg;
    if (out->key_prefix && out->label)
        return DIBS_OK;
    return dibs__fail(DIBS_NO_MEMORY, "no memory for a runtime");
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
