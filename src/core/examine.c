/* The findings are gathered during a visit, and told after its end, because the callback may close the runtime. */
#include "core/examine.h"

#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/utf8.h"

/* A finding, whose four strings follow the struct. */
struct kept {
    DIBS__LINKS(struct kept) links;
    dibs_finding finding;
};

struct findings {
    dibs_runtime *runtime;
    uint32_t admit_ms; /* for an admission: the longest lease; 0: for an examination */
    struct kept *all;  /* list */
};

static bool goes_on(void *context)
{
    const struct findings *findings = context;

    return !atomic_load(&findings->runtime->closing);
}

/* Copies the text to *at as one line, whatever names and servers put into it, and moves *at behind that. */
static const char *put(char **at, const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = memcpy(*at, text, size);

    dibs__utf8_make_line(copy);
    *at += size;
    return copy;
}

static bool found(void *context, const dibs_finding *finding)
{
    struct findings *findings = context;
    size_t size =
        strlen(finding->server) + strlen(finding->subject) + strlen(finding->text) + strlen(finding->remedy) + 4;
    struct kept *kept = malloc(sizeof *kept + size);

    if (!kept)
        return false;
    char *at = (char *)(kept + 1);
    *kept = (struct kept){.finding = {.server = put(&at, finding->server),
                                      .subject = put(&at, finding->subject),
                                      .verdict = finding->verdict,
                                      .text = put(&at, finding->text),
                                      .remedy = put(&at, finding->remedy)}};
    DIBS__LIST_APPEND(findings->all, kept, links);
    return true;
}

static dibs_status find(struct findings *findings, struct dibs__error *error)
{
    struct dibs__examination examination = {
        .context = findings, .goes_on = goes_on, .found = found, .admit_ms = findings->admit_ms};
    struct dibs__visit visit;
    dibs_status status = dibs__visit_begin_if_open(&visit, findings->runtime, error);

    if (status != DIBS_OK)
        return status;
    struct dibs__store *store = visit.core->store;
    if (findings->admit_ms > 0 && visit.core->config.settings->url_count < 2)
        status = dibs__error_set(error, DIBS_INVALID, "only masters of a quorum are admitted, and the store is none");
    else
        status = store->ops->examine(store, &examination, error);
    dibs__visit_end(&visit);
    return examination.no_memory ? dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a finding") : status;
}

dibs_status dibs__examine(dibs_runtime *runtime, uint32_t admit_ms, dibs_finding_fn *fn, void *arg,
                          struct dibs__error *error)
{
    struct findings findings = {.runtime = runtime, .admit_ms = admit_ms};
    dibs_status status = find(&findings, error);

    for (const struct kept *kept = findings.all; kept && status == DIBS_OK; kept = kept->links.next)
        fn(&kept->finding, arg);
    for (struct kept *next; findings.all; findings.all = next) {
        next = findings.all->links.next;
        free(findings.all);
    }
    return status;
}
