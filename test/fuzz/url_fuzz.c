/*
 * The URLs of servers. What parses has its fields within bounds and its shown
 * form made of no more than host, port and path; written anew from the fields
 * it parses to the same. What does not parse leaves nothing behind, and a
 * sentence that repeats no byte of the URL, which might be the password's.
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
        snprintf(expected, sizeof expected, strchr(url->host, ':') ? "[%.120s]:%u" : "%.120s:%u", url->host, url->port);
    promise(strcmp(url->shown, expected) == 0);
}

static void check_fields(const struct dibs__url *url)
{
    promise(!url->host != !url->path);
    promise(url->db <= INT_MAX);
    promise(!url->user || (url->user[0] && url->password));
    if (url->path) {
        promise(url->path[0] == '/' && strlen(url->path) < sizeof((struct sockaddr_un *)0)->sun_path);
        return;
    }
    promise(url->host[0] && all_print(url->host) && !strpbrk(url->host, "@/?# "));
    promise(url->port >= 1 && url->port <= 65535);
}

/* ------------------------------------------------------------- written anew */

/* Every byte of text percent-encoded, at the end of out. */
static char *encode(char *out, const char *text)
{
    for (; *text; text++)
        out += sprintf(out, "%%%02X", (unsigned char)*text);
    return out;
}

/* To be freed. */
static char *write_anew(const struct dibs__url *url)
{
    size_t room = 128;
    const char *const texts[] = {url->user, url->password, url->host, url->path};

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        room += texts[i] ? 3 * strlen(texts[i]) : 0;
    char *text = malloc(room), *end = text;
    promise(text);
    end += sprintf(end, url->path ? "UNIX://" : "REDIS://");
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
        sprintf(end, strchr(url->host, ':') ? "[%s]:%u/%u" : "%s:%u/%u", url->host, url->port, url->db);
    }
    return text;
}

static void check_same(const char *one, const char *other)
{
    promise(!one == !other);
    promise(!one || strcmp(one, other) == 0);
}

static void check_written_anew(const struct dibs__url *url)
{
    struct dibs__error error;
    struct dibs__url again;
    char *text = write_anew(url);

    promise(dibs__url_parse(&again, text, &error) == DIBS_OK);
    check_same(url->user, again.user);
    check_same(url->password, again.password);
    check_same(url->host, again.host);
    check_same(url->path, again.path);
    check_same(url->shown, again.shown);
    promise(url->port == again.port && url->db == again.db);
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
        check_written_anew(&url);
        dibs__url_free(&url);
    } else {
        check_refused(&url, &error);
    }
    free(text);
    return 0;
}
