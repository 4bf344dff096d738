/*
 * The URLs of servers. What parses has its fields within bounds and its shown form made of no more than host, port and
 * path; written again from the fields it parses to the same. What does not parse leaves nothing behind, and a sentence
 * that repeats no byte of the URL, which might be the password's.
 */
#include <limits.h>
#include <string.h>
#include <sys/un.h>

#include "fuzz/fuzz.h"
#include "redis/url.h"

/* Error messages contain none of these bytes by themselves. */
static void check_refused(const struct dibs__url *url, const struct dibs__error *error)
{
    static const struct dibs__url empty;

    promise(memcmp(url, &empty, sizeof empty) == 0);
    promise(error->status == DIBS_INVALID);
    promise(strncmp(error->detail, "URL: ", 5) == 0);
    for (const char *c = error->detail; *c; c++)
        promise(*c >= ' ' && *c < 0x7f && !strchr("~^!$*|\\{}`\"<>", *c));
}

static bool all_print(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            return false;
    return true;
}

static void check_shown(const struct dibs__url *url)
{
    char expected[sizeof url->shown];

    if (url->path)
        snprintf(expected, sizeof expected, "%.150s", url->path);
    else
        snprintf(expected, sizeof expected, strchr(url->hosts[0].name, ':') ? "[%.120s]:%u" : "%.120s:%u",
                 url->hosts[0].name, url->hosts[0].port);
    if (url->kind == DIBS__URL_SERVER)
        promise(strcmp(url->shown, expected) == 0);
    promise(url->shown[0] && strlen(url->shown) < sizeof url->shown - 1);
}

static void check_fields(const struct dibs__url *url)
{
    promise(!url->hosts != !url->path);
    promise((url->host_count > 0) == (url->hosts != NULL));
    promise(url->kind != DIBS__URL_SERVER || url->host_count <= 1);
    promise((url->kind == DIBS__URL_SENTINEL) == (url->master_name != NULL));
    promise(!url->master_name || url->master_name[0]);
    promise(!url->path || (url->kind == DIBS__URL_SERVER && !url->tls));
    promise(url->db <= INT_MAX);
    promise(!url->user || (url->user[0] && url->password));
    if (url->path) {
        promise(url->path[0] == '/' && strlen(url->path) < sizeof((struct sockaddr_un *)0)->sun_path);
        return;
    }
    for (size_t i = 0; i < url->host_count; i++) {
        const struct dibs__host *host = &url->hosts[i];
        promise(host->name[0] && all_print(host->name) && !strpbrk(host->name, "@/?# "));
        promise(host->port >= 1 && host->port <= 65535);
    }
}

/* -------------------------------------------------- written from the fields */

/* Every byte of text percent-encoded, at the end of out. */
static char *encode(char *out, const char *text)
{
    for (; *text; text++)
        out += sprintf(out, "%%%02X", (unsigned char)*text);
    return out;
}

static char *write_hosts(char *end, const struct dibs__url *url)
{
    for (size_t i = 0; i < url->host_count; i++) {
        const struct dibs__host *host = &url->hosts[i];
        end +=
            sprintf(end, strchr(host->name, ':') ? "%s[%s]:%u" : "%s%s:%u", i > 0 ? "," : "", host->name, host->port);
    }
    if (url->master_name) {
        *end++ = '/';
        end = encode(end, url->master_name);
    }
    if (url->kind != DIBS__URL_CLUSTER)
        end += sprintf(end, "/%u", url->db);
    return end;
}

/* To be freed. */
static char *write_from_fields(const struct dibs__url *url)
{
    static const char *const kinds[] = {"", "-SENTINEL", "-CLUSTER"};
    const char *const texts[] = {url->user, url->password, url->path, url->master_name};
    size_t room = 128;

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        room += texts[i] ? 3 * strlen(texts[i]) : 0;
    for (size_t i = 0; i < url->host_count; i++)
        room += strlen(url->hosts[i].name) + 16;
    char *text = malloc(room), *end = text;
    promise(text);
    if (url->path)
        end += sprintf(end, "UNIX://");
    else
        end += sprintf(end, "REDIS%s%s://", url->tls ? "S" : "", kinds[url->kind]);
    if (url->user)
        end = encode(end, url->user);
    if (url->password) {
        *end++ = ':';
        end = encode(end, url->password);
        *end++ = '@';
    }
    if (url->path) {
        *end++ = '/'; /* the first says where the path begins */
        sprintf(encode(end, url->path + 1), "?db=%u", url->db);
    } else {
        write_hosts(end, url);
    }
    return text;
}

static void check_same(const char *one, const char *other)
{
    promise(!one == !other);
    promise(!one || strcmp(one, other) == 0);
}

static void check_written_from_fields(const struct dibs__url *url)
{
    struct dibs__error error;
    struct dibs__url again;
    char *text = write_from_fields(url);

    promise(dibs__url_parse(&again, text, &error) == DIBS_OK);
    check_same(url->user, again.user);
    check_same(url->password, again.password);
    promise(url->kind == again.kind && url->tls == again.tls && url->host_count == again.host_count);
    for (size_t i = 0; i < url->host_count; i++) {
        check_same(url->hosts[i].name, again.hosts[i].name);
        promise(url->hosts[i].port == again.hosts[i].port);
    }
    check_same(url->master_name, again.master_name);
    check_same(url->path, again.path);
    check_same(url->shown, again.shown);
    promise(url->db == again.db);
    dibs__url_free(&again);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dibs__error error = {DIBS_OK, ""};
    struct dibs__url url;
    char *text = malloc(size + 1);

    promise(text);
    memcpy(text, data, size);
    text[size] = '\0';
    if (dibs__url_parse(&url, text, &error) == DIBS_OK) {
        check_fields(&url);
        check_shown(&url);
        check_written_from_fields(&url);
        dibs__url_free(&url);
    } else {
        check_refused(&url, &error);
    }
    free(text);
    return 0;
}
