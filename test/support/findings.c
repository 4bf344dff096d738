#include "support/findings.h"

#include <locale.h>

#include "support/test.h"

static void assert_one_line(const char *text)
{
    for (const char *c = text; *c; c++)
        assert_that((unsigned char)*c >= ' ' && *c != 0x7f, "byte %d: %s", (unsigned char)*c, text);
    assert_that(mbstowcs(NULL, text, 0) != (size_t)-1, "no UTF-8: %s", text);
}

static void note(const dibs_finding *finding, void *arg)
{
    findings *f = arg;

    assert_true(f->count < FINDINGS_MAX);
    struct finding *to = &f->all[f->count++];
    snprintf(to->server, sizeof to->server, "%s", finding->server);
    snprintf(to->subject, sizeof to->subject, "%s", finding->subject);
    snprintf(to->text, sizeof to->text, "%s", finding->text);
    snprintf(to->remedy, sizeof to->remedy, "%s", finding->remedy);
    to->verdict = finding->verdict;
    assert_true(*to->server && *to->subject && *to->text);
    assert_that((to->verdict == DIBS_VERDICT_OK) == !*to->remedy, "%s: %s", to->subject, to->text);
    assert_one_line(to->server);
    assert_one_line(to->text);
    assert_one_line(to->remedy);
    assert_that(strchr(".", to->text[strlen(to->text) - 1]), "%s", to->text);
}

const findings *findings_of(dibs_runtime *rt)
{
    static findings f;

    f.count = 0;
    assert_non_null(setlocale(LC_CTYPE, "C.UTF-8")); /* whose mbstowcs knows what is UTF-8 */
    assert_status(DIBS_OK, dibs_examine(rt, note, &f));
    assert_true(f.count > 0);
    return &f;
}

const struct finding *findings_find(const findings *f, const char *subject, dibs_verdict verdict, const char *words)
{
    for (size_t i = 0; i < f->count; i++)
        if (f->all[i].verdict == verdict && strcmp(f->all[i].subject, subject) == 0 && strstr(f->all[i].text, words))
            return &f->all[i];
    return NULL;
}

const struct finding *findings_expect(const findings *f, const char *subject, dibs_verdict verdict, const char *words)
{
    static const char *const verdicts[] = {"ok", "warn", "bad"};
    const struct finding *found = findings_find(f, subject, verdict, words);

    for (size_t i = 0; i < f->count && !found; i++)
        print_error("%s %s %s: %s %s\n", f->all[i].server, f->all[i].subject, verdicts[f->all[i].verdict],
                    f->all[i].text, f->all[i].remedy);
    assert_that(found, "%s, %s: %s", subject, verdicts[verdict], words);
    return found;
}

size_t findings_bad(const findings *f, const char *subject)
{
    size_t count = 0;

    for (size_t i = 0; i < f->count; i++)
        count += f->all[i].verdict != DIBS_VERDICT_OK && (!subject || strcmp(f->all[i].subject, subject) == 0);
    return count;
}
