/*
 * doc/ACCOUNTS.md: its rules are enough, and each right is needed: if it alone is missing, the effect is the one in its
 * row, and the server has refused it.
 */
#include "support/ability.h"
#include "support/document.h"
#include "support/fixture.h"

#define FILE_NAME "doc/ACCOUNTS.md"
#define SETUSER "ACL SETUSER locks on >PASSWORD"

enum { ROWS_MOST = 60 };

/* A server with the account "locks" of that rule, which outlives its restarts. */
static server *start_with(const char *rule)
{
    const char *config = formatted("user locks on >pw resetchannels %s\nacllog-max-len 1000\n", rule);

    return server_start(&(server_options){.config = config});
}

static const char *url_of(const server *s)
{
    return formatted("unix://locks:pw@%s", s->socket_path);
}

/* Whether the server has refused that right. The log of refusals does not outlive a restart. */
static bool was_refused(server *s, const char *right)
{
    bool found = false;
    redisReply *log = server_command(s, "ACL LOG 1000");

    char *prefix = formatted("%s", right + 1);
    prefix[strcspn(prefix, "*")] = '\0';
    for (size_t i = 0; i < log->elements && !found; i++)
        for (size_t j = 0; j + 1 < log->element[i]->elements && !found; j += 2)
            found = strcmp(log->element[i]->element[j]->str, "object") == 0 &&
                    strncasecmp(log->element[i]->element[j + 1]->str, prefix, strlen(prefix)) == 0;
    freeReplyObject(log);
    return found;
}

struct refused {
    const char *right;
    bool was;
};

static void look_at_refusals(server *s, void *arg)
{
    struct refused *refused = arg;

    refused->was = was_refused(s, refused->right);
}

static bool row_is_right(const document_row *row, const char *rule)
{
    ability_word expected[ABILITY_COLUMNS];
    static ability found;
    const char *right = document_right(row);
    bool good = true;

    for (int i = 0; i < ABILITY_COLUMNS; i++)
        snprintf(expected[i], sizeof expected[i], "%.20s", *row->cells[i + 1] ? row->cells[i + 1] : ability_full[i]);
    struct refused refused = {.right = right};
    server *s = start_with(document_rule_without(rule, right));
    ability_try(&found, s, url_of(s), NULL, (const ability_word *)expected, look_at_refusals, &refused);
    server_stop(s);
    for (int i = 0; i < ABILITY_COLUMNS; i++)
        good = good && (strcmp(found.words[i], expected[i]) == 0 || strcmp(found.words[i], "-") == 0);
    if (!good) {
        print_error("| %s |", row->cells[0]);
        for (int i = 0; i < ABILITY_COLUMNS; i++)
            print_error(" %s |", strcmp(found.words[i], ability_full[i]) == 0 ? "" : found.words[i]);
        print_error(" %s |\n%s", row->cells[ABILITY_COLUMNS + 1], found.errors);
    }
    if (!refused.was)
        print_error("%s was not refused\n", right);
    return good && refused.was;
}

static void expect_all(const char *rule)
{
    static ability found;
    server *s = start_with(rule);

    ability_try(&found, s, url_of(s), NULL, ability_full, NULL, NULL);
    for (int i = 0; i < ABILITY_COLUMNS; i++)
        assert_that(strcmp(found.words[i], ability_full[i]) == 0, "column %d: %s; %s", i, found.words[i], found.errors);
    assert_string_equal(found.errors, "");
    server_stop(s);
}

TEST(the_documented_rule_is_enough_for_one_server)
{
    const char *rule = document_block(FILE_NAME, "One server", SETUSER);

    expect_all(rule);
    expect_all(formatted("%s +script|load", document_rule_without(rule, "+eval")));
}

TEST(each_right_of_one_server_is_needed)
{
    static document_row rows[ROWS_MOST];
    const char *rule = document_block(FILE_NAME, "One server", SETUSER), *rest = rule;
    size_t count = document_table(FILE_NAME, "One server", rows, ROWS_MOST);
    bool good = true;

    for (size_t i = 0; i < count; i++) {
        good = row_is_right(&rows[i], rule) && good;
        rest = document_rule_without(rest, document_right(&rows[i]));
    }
    assert_string_equal(rest, " -@all"); /* the rule has no right without a row */
    assert_true(good);
}

/* server_start gives url an account with the rights of $DIBS_TEST_ACL alone. */
TEST_WITH(the_environment_names_the_account_of_a_test_server, fixture_setup, fixture_teardown, fixture *f)
{
    const char *rule = getenv("DIBS_TEST_ACL");

    fixture_open_holding(f, LONG_LEASE_MS, "x");
    redisReply *clients = server_command(f->server, "CLIENT LIST");
    assert_int_equal(strstr(clients->str, "user=locks") != NULL, rule != NULL);
    freeReplyObject(clients);
    assert_status(DIBS_OK, dibs_unlock(f->rt, "x"));
}

TESTS(NULL, NULL)
