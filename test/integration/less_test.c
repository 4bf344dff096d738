/* doc/SERVERS.md: what works on servers that do not know a command, and behind a proxy that passes on nothing but keys.
 */
#include "support/ability.h"
#include "support/document.h"
#include "support/fixture.h"
#include "support/script_server.h"

enum { ROWS_MOST = 40 };

static bool is_as_expected(const char *what, const ability *found, const ability_word *expected)
{
    bool good = true;

    for (int i = 0; i < ABILITY_COLUMNS; i++)
        good = good && (strcmp(found->words[i], expected[i]) == 0 || strcmp(found->words[i], "-") == 0);
    if (good)
        return true;
    print_error("| %s |", what);
    for (int i = 0; i < ABILITY_COLUMNS; i++)
        print_error(" %s |", strcmp(found->words[i], ability_full[i]) == 0 ? "" : found->words[i]);
    print_error("\n%s", found->errors);
    return false;
}

/* ------------------------------------------------------- commands that were renamed */

/* "EVAL SCRIPT": both are unknown. */
static server *start_without(const char *commands)
{
    char config[400] = "";
    size_t used = 0;

    char *copy = formatted("%.99s", commands);
    for (const char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
        used += (size_t)snprintf(config + used, sizeof config - used, "rename-command %s \"\"\n", word);
    return server_start(&(server_options){.config = config});
}

static bool row_is_right(const document_row *row)
{
    ability_word expected[ABILITY_COLUMNS];
    static ability found;
    server *s = start_without(row->cells[0]);

    for (int i = 0; i < ABILITY_COLUMNS; i++)
        snprintf(expected[i], sizeof expected[i], "%.20s", *row->cells[i + 1] ? row->cells[i + 1] : ability_full[i]);
    ability_try(&found, s, s->url, NULL, (const ability_word *)expected, NULL, NULL);
    server_stop(s);
    return is_as_expected(row->cells[0], &found, (const ability_word *)expected);
}

TEST(servers_md_is_right_about_each_missing_command)
{
    static document_row rows[ROWS_MOST];
    size_t count = document_table("doc/SERVERS.md", "Commands", rows, ROWS_MOST);
    bool good = true;

    for (size_t i = 0; i < count; i++) {
        if (strcmp(rows[i].cells[0], "WAITAOF") != 0) /* an older server does not let it be renamed */
            good = row_is_right(&rows[i]) && good;
    }
    assert_true(good);
}

/* dibs_open reports an option that needs a missing command. */
TEST(open_reports_a_missing_command_at_once)
{
    server *s = start_without("SELECT WAIT");

    expect_not_opened(DIBS_STORE_ERROR, formatted("%s?db=3", s->url), NULL,
                      "refused SELECT: to it that is an unknown command");
    expect_not_opened(DIBS_STORE_ERROR, s->url, &(dibs_config){.min_replicas = 1},
                      "refused WAIT: to it that is an unknown command");
    server_stop(s);
    s = start_without("INFO");
    expect_not_opened(DIBS_STORE_ERROR, s->url, &(dibs_config){.durable = 1}, "the right to INFO");
    server_stop(s);
}

/* The scripts that a connection loaded at its begin may be lost while it stays. */
TEST(a_lost_script_is_loaded_again_where_eval_is_unknown)
{
    server *s = start_without("EVAL");
    dibs_runtime *rt = open_url(s->url, NULL);

    assert_status(DIBS_OK, dibs_lock(rt, "a"));
    server_do(s, "SCRIPT FLUSH");
    assert_status(DIBS_OK, dibs_lock(rt, "b"));
    assert_status(DIBS_OK, dibs_extend(rt, "a", 60000));
    assert_status(DIBS_OK, dibs_unlock(rt, "a"));
    assert_status(DIBS_OK, dibs_unlock(rt, "b"));
    dibs_close(rt);
    server_stop(s);
}

/* -------------------------------------------------------------------------- a proxy */

TEST_WITH(locks_work_behind_a_proxy_that_passes_on_keys_alone, fixture_setup, fixture_teardown, fixture *f)
{
    static const char *const kept[] = {"CLIENT", "INFO", "SCRIPT", "PUBSUB", "PUBLISH", "SUBSCRIBE", "PING", "TIME"};
    static const ability_word all[ABILITY_COLUMNS] = {"OK", "OK", "OK", "OK", "yes", "poll", "STORE_ERROR", "no", "no"};
    static ability found;
    script_server *net = fixture_between(f);

    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        script_server_answer(net, formatted("\r\n%s\r\n", kept[i]), "-ERR unknown command, or not supported here\r\n");
    ability_try(&found, f->server, script_server_url(net), NULL, all, NULL, NULL);
    assert_true(is_as_expected("a proxy", &found, all));
}

TESTS(NULL, NULL)
