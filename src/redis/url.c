#include "redis/url.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/un.h>

#include "base/text.h"

#define DEFAULT_PORT 6379
#define SENTINEL_PORT 26379
#define HOSTS_MAX 64

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* Percent-decodes `length` bytes into a new string at *out. part: the name of these bytes in a sentence. */
static dibs_status decode(char **out, const char *text, size_t length, const char *part, struct dibs__error *error)
{
    char *decoded = malloc(length + 1); /* NOLINT(clang-analyzer-optin.portability.UnixAPI): of a text in memory */
    char *end = decoded;

    if (!decoded)
        return dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a URL");
    for (size_t i = 0; i < length; i++) {
        if ((unsigned char)text[i] <= ' ' || text[i] == 0x7f) {
            free(decoded);
            return dibs__error_set(error, DIBS_INVALID,
                                   "URL: the %s has a blank or control byte, to be percent-encoded", part);
        }
        if (text[i] != '%') {
            *end++ = text[i];
            continue;
        }
        int high = i + 2 < length ? hex_digit(text[i + 1]) : -1;
        int low = i + 2 < length ? hex_digit(text[i + 2]) : -1;
        if (high < 0 || low < 0 || high + low == 0) {
            free(decoded);
            return dibs__error_set(error, DIBS_INVALID,
                                   "URL: the %s has a %% that two hex digits don't follow (%%00 is none)", part);
        }
        *end++ = (char)(high * 16 + low);
        i += 2;
    }
    *end = '\0';
    *out = decoded;
    return DIBS_OK;
}

/* Parses [user[:password]] of `length` bytes. */
static dibs_status parse_credentials(struct dibs__url *url, const char *text, size_t length, struct dibs__error *error)
{
    const char *colon = memchr(text, ':', length);
    size_t user_length = colon ? (size_t)(colon - text) : length;

    if (user_length == 0 && !colon)
        return dibs__error_set(error, DIBS_INVALID, "URL: the user before the @ is empty");
    if (user_length > 0 && decode(&url->user, text, user_length, "user", error) != DIBS_OK)
        return error->status;
    if (!colon)
        return decode(&url->password, "", 0, "password", error);
    return decode(&url->password, colon + 1, length - user_length - 1, "password", error);
}

static bool host_name_is_good(const char *host)
{
    for (const char *c = host; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("-._", *c))
            return false;
    return *host != '\0';
}

static bool all_graphic(const char *text)
{
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c <= ' ' || *c == 0x7f)
            return false;
    return true;
}

/* Checks an address that was in brackets. The resolver finds out whether the scope after its % exists. */
static bool ipv6_is_good(const char *host)
{
    char address[INET6_ADDRSTRLEN];
    struct in6_addr unused;
    size_t length = strcspn(host, "%");

    if (length >= sizeof address || !all_graphic(host + length))
        return false;
    memcpy(address, host, length);
    address[length] = '\0';
    return inet_pton(AF_INET6, address, &unused) == 1;
}

static dibs_status parse_port(struct dibs__host *host, const char *text, const char *end, struct dibs__error *error)
{
    uint64_t port;

    if (text == end)
        return DIBS_OK;
    if (*text != ':' || !dibs__read_number(text + 1, (size_t)(end - text - 1), 65535, &port) || port == 0)
        return dibs__error_set(error, DIBS_INVALID, "URL: the port is not a number from 1 to 65535");
    host->port = (unsigned)port;
    return DIBS_OK;
}

/* Parses host[:port] from text to end. */
static dibs_status parse_host(struct dibs__host *host, const char *text, const char *end, struct dibs__error *error)
{
    const char *host_end;
    bool bracketed = text < end && *text == '[';

    if (bracketed) {
        text++;
        host_end = memchr(text, ']', (size_t)(end - text));
        if (!host_end)
            return dibs__error_set(error, DIBS_INVALID, "URL: the host has a [ without its ]");
    } else {
        host_end = memchr(text, ':', (size_t)(end - text));
        if (!host_end)
            host_end = end;
    }
    host->name = strndup(text, (size_t)(host_end - text));
    if (!host->name)
        return dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a URL");
    if (bracketed ? !ipv6_is_good(host->name) : !host_name_is_good(host->name))
        return dibs__error_set(error, DIBS_INVALID, "URL: the host is %s",
                               !*host->name ? "missing"
                               : bracketed  ? "not an IPv6 address"
                                            : "not a host name");
    return parse_port(host, host_end + bracketed, end, error);
}

/* Parses host[:port] of a server, or of other kinds any number of them, separated by commas. */
static dibs_status parse_hosts(struct dibs__url *url, const char *text, const char *end, struct dibs__error *error)
{
    bool several = url->kind != DIBS__URL_SERVER;
    size_t count = 1;

    for (const char *c = text; several && c < end; c++)
        count += *c == ',';
    if (count > HOSTS_MAX)
        return dibs__error_set(error, DIBS_INVALID, "URL: there are more than %d hosts", HOSTS_MAX);
    url->hosts = calloc(count, sizeof *url->hosts);
    if (!url->hosts)
        return dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a URL");
    while (url->host_count < count) {
        const char *comma = several ? memchr(text, ',', (size_t)(end - text)) : NULL;
        struct dibs__host *host = &url->hosts[url->host_count++];
        host->port = url->kind == DIBS__URL_SENTINEL ? SENTINEL_PORT : DEFAULT_PORT;
        if (parse_host(host, text, comma ? comma : end, error) != DIBS_OK)
            return error->status;
        text = comma ? comma + 1 : end;
    }
    return DIBS_OK;
}

static dibs_status parse_db(struct dibs__url *url, const char *text, struct dibs__error *error)
{
    uint64_t db;

    if (!dibs__read_number(text, strlen(text), INT_MAX, &db))
        return dibs__error_set(error, DIBS_INVALID, "URL: the database is not a number from 0 to %d", INT_MAX);
    url->db = (unsigned)db;
    return DIBS_OK;
}

/* Parses what follows the hosts of redis-sentinel://: /master-name[/db]. */
static dibs_status parse_master(struct dibs__url *url, const char *text, struct dibs__error *error)
{
    size_t length = *text ? strcspn(text + 1, "/") : 0;

    if (length == 0)
        return dibs__error_set(error, DIBS_INVALID, "URL: the name of the master is missing behind the sentinels");
    if (decode(&url->master_name, text + 1, length, "name of the master", error) != DIBS_OK)
        return error->status;
    text += 1 + length;
    return text[0] && text[1] ? parse_db(url, text + 1, error) : DIBS_OK;
}

static dibs_status parse_behind_hosts(struct dibs__url *url, const char *text, struct dibs__error *error)
{
    if (url->kind == DIBS__URL_SENTINEL)
        return parse_master(url, text, error);
    if (url->kind == DIBS__URL_CLUSTER && text[0] && text[1])
        return dibs__error_set(error, DIBS_INVALID,
                               "URL: nothing may follow the hosts of a cluster, which has one database");
    return text[0] && text[1] ? parse_db(url, text + 1, error) : DIBS_OK;
}

/* Writes "host:port" of the first host; except for a single server, also how many more there are, and what they are. */
static void show_hosts(struct dibs__url *url)
{
    const struct dibs__host *host = &url->hosts[0];
    char first[140], more[40] = "";

    /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): parse_hosts has filled in all of them */
    snprintf(first, sizeof first, strchr(host->name, ':') ? "[%.120s]:%u" : "%.120s:%u", host->name, host->port);
    if (url->host_count > 1)
        snprintf(more, sizeof more, " and %zu more", url->host_count - 1);
    if (url->kind == DIBS__URL_CLUSTER)
        snprintf(url->shown, sizeof url->shown, "the cluster of %.100s%s", first, more);
    else if (url->master_name)
        snprintf(url->shown, sizeof url->shown, "%.40s of the sentinel%s %.60s%s", url->master_name, *more ? "s" : "",
                 first, more);
    else
        snprintf(url->shown, sizeof url->shown, "%s", first);
}

static dibs_status parse_parts(struct dibs__url *url, const char *text, struct dibs__error *error)
{
    const char *end = text + strcspn(text, "/?#");
    const char *host = text;

    if (*end == '?' || *end == '#')
        return dibs__error_set(error, DIBS_INVALID, "URL: a ? query or # fragment may not follow the host of redis://");
    for (const char *c = text; c < end; c++)
        if (*c == '@')
            host = c + 1;
    if (host > text && parse_credentials(url, text, (size_t)(host - 1 - text), error) != DIBS_OK)
        return error->status;
    if (parse_hosts(url, host, end, error) != DIBS_OK || parse_behind_hosts(url, end, error) != DIBS_OK)
        return error->status;
    show_hosts(url);
    return DIBS_OK;
}

/* A / or # in a password ends what is taken for the host, and hides the @ behind it, so the error says what to do. */
static dibs_status parse_tcp(struct dibs__url *url, const char *text, struct dibs__error *error)
{
    dibs_status status = parse_parts(url, text, error);

    if (status == DIBS_INVALID && strchr(text + strcspn(text, "/?#"), '@'))
        dibs__error_set(error, DIBS_INVALID,
                        "URL: a /, ? or # in a user or password must be percent-encoded: %%2F, %%3F, %%23");
    return status;
}

static dibs_status parse_unix(struct dibs__url *url, const char *text, struct dibs__error *error)
{
    const char *path = text + strcspn(text, "/");
    const char *query = path + strcspn(path, "?");

    if (*path == '\0')
        return dibs__error_set(error, DIBS_INVALID, "URL: the path of the socket is missing; it begins with a /");
    if (path > text && path[-1] != '@')
        return dibs__error_set(error, DIBS_INVALID, "URL: unix:// takes user:password@ and a path, no host");
    if (path > text && parse_credentials(url, text, (size_t)(path - 1 - text), error) != DIBS_OK)
        return error->status;
    if (decode(&url->path, path, (size_t)(query - path), "path", error) != DIBS_OK)
        return error->status;
    if (strlen(url->path) >= sizeof((struct sockaddr_un *)0)->sun_path)
        return dibs__error_set(error, DIBS_INVALID, "URL: the path of the socket is too long, %zu bytes are possible",
                               sizeof((struct sockaddr_un *)0)->sun_path - 1);
    snprintf(url->shown, sizeof url->shown, "%.150s", url->path);
    if (*query == '\0')
        return DIBS_OK;
    if (strncmp(query, "?db=", 4) != 0)
        return dibs__error_set(error, DIBS_INVALID, "URL: the query after the path may only be ?db=N");
    return parse_db(url, query + 4, error);
}

static bool has_scheme(const char **text, const char *scheme)
{
    size_t length = strlen(scheme);

    if (strncasecmp(*text, scheme, length) != 0)
        return false;
    *text += length;
    return true;
}

static dibs_status parse_any(struct dibs__url *url, const char *text, struct dibs__error *error)
{
    static const struct {
        const char *scheme;
        enum dibs__url_kind kind;
        bool tls;
    } schemes[] = {
        {"redis://", DIBS__URL_SERVER, false},
        {"rediss://", DIBS__URL_SERVER, true},
        {"redis-sentinel://", DIBS__URL_SENTINEL, false},
        {"rediss-sentinel://", DIBS__URL_SENTINEL, true},
        {"redis-cluster://", DIBS__URL_CLUSTER, false},
        {"rediss-cluster://", DIBS__URL_CLUSTER, true},
    };

    if (has_scheme(&text, "unix://"))
        return parse_unix(url, text, error);
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        if (!has_scheme(&text, schemes[i].scheme))
            continue;
        url->kind = schemes[i].kind;
        url->tls = schemes[i].tls;
        return parse_tcp(url, text, error);
    }
    return dibs__error_set(error, DIBS_INVALID,
                           "URL: the scheme is none of redis[s]://, redis[s]-sentinel://, redis[s]-cluster://, "
                           "unix:// and mem:");
}

dibs_status dibs__url_parse(struct dibs__url *out, const char *text, struct dibs__error *error)
{
    memset(out, 0, sizeof *out);
    if (parse_any(out, text, error) == DIBS_OK)
        return DIBS_OK;
    dibs__url_free(out);
    return error->status;
}

/* False: no memory. */
static bool copy_text(char **out, const char *text)
{
    *out = text ? strdup(text) : NULL;
    return *out || !text;
}

dibs_status dibs__url_at(struct dibs__url *out, bool tls, const char *user, const char *password, const char *host,
                         unsigned port, struct dibs__error *error)
{
    memset(out, 0, sizeof *out);
    out->kind = DIBS__URL_SERVER;
    out->tls = tls;
    out->hosts = calloc(1, sizeof *out->hosts);
    out->host_count = out->hosts ? 1 : 0;
    if (!out->hosts || !copy_text(&out->hosts[0].name, host) || !copy_text(&out->user, user) ||
        !copy_text(&out->password, password)) {
        dibs__url_free(out);
        return dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a URL");
    }
    out->hosts[0].port = port;
    show_hosts(out);
    return DIBS_OK;
}

void dibs__url_free(struct dibs__url *url)
{
    free(url->user);
    free(url->password);
    for (size_t i = 0; i < url->host_count; i++)
        free(url->hosts[i].name);
    free(url->hosts);
    free(url->path);
    free(url->master_name);
    memset(url, 0, sizeof *url);
}
