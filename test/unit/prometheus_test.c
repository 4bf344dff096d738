/* dibs_stats_write_prometheus: what a scrape reads, on a clock that the test moves. */
#include <dibs_metrics.h>

#include <locale.h>

#include "support/tasks.h"
#include "unit/handover_setup.h"

/* The metrics as text; freed by the next call. */
static const char *scrape(dibs_runtime *rt)
{
    static char *text;
    size_t size;

    free(text);
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    assert_status(DIBS_OK, dibs_stats_write_prometheus(rt, out));
    assert_int_equal(fclose(out), 0);
    return text;
}

/* Expects that line, whole. */
static void expect_line(dibs_runtime *rt, const char *line)
{
    const char *text = scrape(rt), *at = text;
    size_t size = strlen(line);

    while ((at = strstr(at, line)) && !((at == text || at[-1] == '\n') && at[size] == '\n'))
        at++;
    assert_that(at != NULL, "no line \"%s\" in\n%s", line, text);
}

static void lock_once(stage *s, const char *name, int64_t hold_ns)
{
    assert_status(DIBS_OK, dibs_lock(s->rt, name));
    moved_clock_advance(&s->clock, hold_ns);
    assert_status(DIBS_OK, dibs_unlock(s->rt, name));
}

TEST_ON(holds_are_counted_by_their_length, stage *s)
{
    stage_open(s, LEASE);
    lock_once(s, "sku:1", 500);
    lock_once(s, "sku:2", MS(1));
    lock_once(s, "user:1", MS(1500));
    assert_status(DIBS_OK, dibs_lock(s->rt, "sku:3"));
    expect_line(s->rt, "dibs_acquired_total 4");
    expect_line(s->rt, "dibs_released_total 3");
    expect_line(s->rt, "dibs_holds 1");
    expect_line(s->rt, "dibs_hold_seconds_count 3");
    expect_line(s->rt, "dibs_hold_seconds_sum 1.5010005");
    expect_line(s->rt, "dibs_hold_seconds_bucket{le=\"0.000001\"} 1");
    expect_line(s->rt, "dibs_hold_seconds_bucket{le=\"0.000768\"} 1");
    expect_line(s->rt, "dibs_hold_seconds_bucket{le=\"0.001024\"} 2");
    expect_line(s->rt, "dibs_hold_seconds_bucket{le=\"+Inf\"} 3");
    expect_line(s->rt, "dibs_group_hold_seconds_count{group=\"sku\"} 2");
    expect_line(s->rt, "dibs_group_hold_seconds_bucket{group=\"sku\",le=\"+Inf\"} 2");
    expect_line(s->rt, "dibs_group_hold_seconds_sum{group=\"user\"} 1.5");
    expect_line(s->rt, "dibs_group_wait_seconds_count{group=\"sku\"} 3");
    assert_status(DIBS_OK, dibs_lock(s->rt, "sku:3")); /* a second hold of the same lock is none */
    expect_line(s->rt, "dibs_acquired_total 4");
    expect_line(s->rt, "dibs_reentered_total 1");
    assert_status(DIBS_OK, dibs_unlock_all(s->rt));
    expect_line(s->rt, "dibs_holds 0");
}

/* A thread waits, for a lease that is handed over and then for one that never comes. */
TEST_ON(threads_that_wait_are_counted_while_they_wait, stage *s)
{
    s->settings.handoff_ms = FOR_LONG;
    stage_open(s, LEASE);
    expect_line(s->rt, "dibs_waiting 0");
    assert_status(DIBS_OK, dibs_lock(s->rt, "a"));
    actor *next = stage_waiter(s, "a", FOREVER, 1);
    expect_line(s->rt, "dibs_waiting 1");
    expect_line(s->rt, "dibs_group_waiting{group=\"\"} 1");
    moved_clock_advance(&s->clock, MS(20));
    assert_status(DIBS_OK, dibs_unlock(s->rt, "a"));
    assert_status(DIBS_OK, actor_result(next));
    expect_line(s->rt, "dibs_waiting 0");
    expect_line(s->rt, "dibs_wait_seconds_sum 0.02");
    expect_line(s->rt, "dibs_hold_seconds_sum 0.02");
    actor *unlucky = stage_waiter(s, "a", 100, 1);
    expect_line(s->rt, "dibs_waiting 1");
    moved_clock_advance(&s->clock, MS(200));
    assert_status(DIBS_TIMEOUT, actor_result(unlucky));
    expect_line(s->rt, "dibs_waiting 0");
    expect_line(s->rt, "dibs_wait_seconds_count 2"); /* of those that got it */
    expect_line(s->rt, "dibs_timed_out_total 1");
    actor_end(unlucky);
    assert_status(DIBS_OK, actor_unlock(next, s->rt, "a"));
    expect_line(s->rt, "dibs_hold_seconds_sum 0.22");
}

/* Another runtime has the lock, so the thread asks the store repeatedly. */
TEST_ON(a_thread_that_waits_for_the_store_is_counted, stage *s)
{
    stage_open(s, LEASE);
    dibs_runtime *other = stage_rival(s, LEASE, "a");
    actor *next = stage_waiter(s, "a", FOREVER, 1);
    expect_line(s->rt, "dibs_waiting 1");
    assert_status(DIBS_OK, dibs_unlock(other, "a"));
    assert_status(DIBS_OK, actor_result(next));
    expect_line(s->rt, "dibs_waiting 0");
    expect_line(s->rt, "dibs_contended_total 1");
    assert_status(DIBS_OK, actor_unlock(next, s->rt, "a"));
}

TEST_ON(the_hold_of_a_thread_that_ended_is_no_hold, stage *s)
{
    stage_open(s, LEASE);
    actor *a = actor_start();
    assert_status(DIBS_OK, actor_lock(a, s->rt, "a", FOREVER));
    expect_line(s->rt, "dibs_holds 1");
    actor_end(a);
    expect_line(s->rt, "dibs_holds 0");
    expect_line(s->rt, "dibs_orphaned_total 1");
    expect_line(s->rt, "dibs_released_total 0");
}

TEST_ON(odd_group_names_are_escaped, stage *s)
{
    stage_open(s, LEASE);
    lock_once(s, "say \"hi\"\\\n:1", 1);
    lock_once(s, "caf\xc3\xa9:1", 1);
    lock_once(s, "\xff\xc3:1", 1);
    expect_line(s->rt, "dibs_group_waiting{group=\"say \\\"hi\\\"\\\\\\n\"} 0");
    expect_line(s->rt, "dibs_group_waiting{group=\"caf\xc3\xa9\"} 0");
    expect_line(s->rt, "dibs_group_waiting{group=\"\\\\xFF\\\\xC3\"} 0");
}

TEST_ON(bytes_that_are_no_character_are_escaped, stage *s)
{
    static const char *const rows[][2] = {
        {"\xc0\xaf", "\\\\xC0\\\\xAF"}, /* overlong */
        {"\xe0\x80\xaf", "\\\\xE0\\\\x80\\\\xAF"},
        {"\xed\xa0\x80", "\\\\xED\\\\xA0\\\\x80"},            /* a surrogate */
        {"\xf4\x90\x80\x80", "\\\\xF4\\\\x90\\\\x80\\\\x80"}, /* above the last character */
        {"\xf5\x80\x80\x80", "\\\\xF5\\\\x80\\\\x80\\\\x80"},
        {"\xf0\x9f\x94\x92", "\xf0\x9f\x94\x92"},
    };
    char text[64];

    stage_open(s, LEASE);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        snprintf(text, sizeof text, "%s:1", rows[i][0]);
        lock_once(s, text, 1);
        snprintf(text, sizeof text, "dibs_group_waiting{group=\"%s\"} 0", rows[i][1]);
        expect_line(s->rt, text);
    }
}

/* ------------------------------------------------------- labels, read as a scraper does */

static int hex(char digit)
{
    return digit >= '0' && digit <= '9' ? digit - '0' : digit - 'A' + 10;
}

/* From the text of a label to its value, and from there to the name of the group. */
static void read_label(const char *at, char *name)
{
    char value[512];
    size_t size = 0;

    for (; *at != '"'; at++) {
        bool is_escaped = *at == '\\';
        at += is_escaped;
        value[size++] = is_escaped && *at == 'n' ? '\n' : *at;
    }
    value[size] = '\0';
    assert_true(mbstowcs(NULL, value, 0) != (size_t)-1); /* which is strict in a locale of UTF-8 */
    for (at = value; *at; at++) {
        bool is_byte = at[0] == '\\' && at[1] == 'x';
        *name++ = (char)(is_byte ? hex(at[2]) << 4 | hex(at[3]) : *at);
        at += is_byte ? 3 : 0;
    }
    *name = '\0';
}

enum { ODD_GROUPS = 62 }; /* with the two that are always there, as many as a runtime tells apart */

/* Short names made of pieces that look like parts of an escape, so that many are nearly alike. */
static void make_odd_name(char *name, unsigned *seed)
{
    static const char *const pieces[] = {"\\",       "x",     "\\x", "F",    "5C",   "\xff",     "\xc3",
                                         "\xa9",     "\n",    "\"",  "n",    "\xed", "\xa0\x80", "(others)",
                                         "\xc3\xa9", "\\xFF", "28",  "\xc0", "\xf5", "\x80",     "\xf0\x9f\x94\x92"};

    *name = '\0';
    for (int left = 1 + rand_r(seed) % 4; left > 0; left--)
        strcat(name, pieces[(size_t)rand_r(seed) % (sizeof pieces / sizeof pieces[0])]);
}

static void note_group(char (*groups)[64], size_t *count, const char *name)
{
    for (size_t i = 0; i < *count; i++)
        if (strcmp(groups[i], name) == 0)
            return;
    strcpy(groups[(*count)++], name);
}

/* Each group that locks were in, and no other, has one line: none is there twice. */
static void expect_groups(dibs_runtime *rt, char (*groups)[64], size_t count)
{
    static const char beginning[] = "\ndibs_group_waiting{group=\"";
    size_t lines = 0;

    for (const char *at = scrape(rt); (at = strstr(at, beginning)); at++, lines++) {
        char name[512];
        size_t i = 0;
        read_label(at + strlen(beginning), name);
        while (i < count && strcmp(groups[i], name) != 0)
            i++;
        assert_that(i < count, "no group is named %s", name);
        groups[i][0] = '\0'; /* no second line may have that */
    }
    assert_int_equal(lines, count);
}

TEST_ON(each_group_has_a_label_of_its_own, stage *s)
{
    unsigned seed = 20261123;

    assert_non_null(setlocale(LC_CTYPE, "C.UTF-8"));
    for (int round = 0; round < 40; round++) {
        char groups[ODD_GROUPS + 1][64], name[80];
        size_t count = 0;
        stage_open(s, LEASE);
        while (count < ODD_GROUPS) {
            make_odd_name(name, &seed);
            note_group(groups, &count, name);
            strcat(name, ":1");
            lock_once(s, name, 1);
        }
        expect_groups(s->rt, groups, count);
        close_runtime(&s->rt);
    }
}

/* More groups than a runtime tells apart; one is named like the group of the rest. */
TEST_ON(the_rest_shares_no_label_with_a_group, stage *s)
{
    char name[32];

    stage_open(s, LEASE);
    lock_once(s, "(others):1", 1);
    for (int i = 0; i < 70; i++) {
        snprintf(name, sizeof name, "%d:1", i);
        lock_once(s, name, 1);
    }
    expect_line(s->rt, "dibs_group_hold_seconds_count{group=\"\\\\x28others)\"} 1");
    expect_line(s->rt, "dibs_group_hold_seconds_count{group=\"(others)\"} 7");
}

/* Each metric is declared once, before its lines, which stand together; the buckets of a histogram rise. */
TEST_ON(the_metrics_text_keeps_to_the_format, stage *s)
{
    static char seen[64][64];
    unsigned families = 0;
    unsigned long last = 0;

    stage_open(s, LEASE);
    lock_once(s, "sku:1", 700);
    lock_once(s, "user:1", MS(3));
    char *text = strdup(scrape(s->rt)), *rest = text;
    for (char *line; (line = strtok_r(rest, "\n", &rest));) {
        char name[64];
        if (sscanf(line, "# HELP %63s", name) == 1) {
            for (unsigned i = 0; i < families; i++)
                assert_string_not_equal(seen[i], name);
            snprintf(seen[families++], sizeof seen[0], "%s", name);
        } else if (line[0] != '#') {
            assert_memory_equal(line, seen[families - 1], strlen(seen[families - 1]));
            unsigned long value = strtoul(strrchr(line, ' ') + 1, NULL, 10);
            if (strstr(line, "_bucket{") && !strstr(line, "le=\"0.000001\""))
                assert_true(value >= last);
            last = value;
        }
    }
    free(text);
    assert_true(families > 20);
}

TEST_ON(metrics_refuse_bad_arguments_and_a_closing_runtime, stage *s)
{
    stage_open(s, LEASE);
    assert_status(DIBS_INVALID, dibs_stats_write_prometheus(NULL, stdout));
    assert_status(DIBS_INVALID, dibs_stats_write_prometheus(s->rt, NULL));
    FILE *full = fopen("/dev/full", "w");
    assert_non_null(full);
    setvbuf(full, NULL, _IONBF, 0);
    assert_status(DIBS_OK, dibs_stats_write_prometheus(s->rt, full));
    assert_true(ferror(full));
    fclose(full);
    dibs_runtime *closed = stage_open_another(s, LEASE);
    dibs_close(closed);
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    assert_status(DIBS_CLOSED, dibs_stats_write_prometheus(closed, out));
    fclose(out);
    assert_int_equal(size, 0);
    free(text);
}

/* An acquire of a cancelled task is complete when its begin returns. */
TEST_ON(begun_calls_are_counted_in_metrics, stage *s)
{
    dibs_queue *queue = test_queue(queue_new());
    dibs_completion done;

    stage_open(s, LEASE);
    dibs_task *task = test_task(task_of_runtime(s->rt));
    expect_line(s->rt, "dibs_begun_total 0");
    dibs_task_cancel(task);
    assert_status(DIBS_OK, dibs_lock_begin(task, "a", FOREVER, NULL, queue, NULL));
    assert_status(DIBS_OK, dibs_unlock_begin(task, "a", queue, NULL));
    expect_line(s->rt, "dibs_begun_total 2");
    expect_line(s->rt, "dibs_cancelled_total 1");
    expect_line(s->rt, "dibs_untaken 2");
    assert_int_equal(dibs_queue_take(queue, &done, 1, 0), 1);
    expect_line(s->rt, "dibs_untaken 1");
    assert_int_equal(dibs_queue_take(queue, &done, 1, 0), 1);
    expect_line(s->rt, "dibs_untaken 0");
    expect_line(s->rt, "# TYPE dibs_untaken gauge");
}

TESTS(setup, stage_teardown)
