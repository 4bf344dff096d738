/* Which master the answers of the sentinels name together, and whether a majority stands behind it. */
#include "redis/sentinel_parts.h"
#include "support/test.h"

#define HOSTS_MOST 5
#define NO_EPOCH (-1)

/* What a sentinel says: the port of the master (0: it knows none; -1: it has not answered), its epoch, its id. */
struct says {
    int port;
    int64_t epoch;
    char id;
};

static struct dibs__sentinel_host hosts[HOSTS_MOST], *listed[HOSTS_MOST];
static struct dibs__sentinel sentinel;

/* The first `given` are those of the URL. */
static void say(const struct says *says, size_t count, size_t given)
{
    memset(hosts, 0, sizeof hosts);
    sentinel.hosts = (struct dibs__sentinel_hosts){.hosts = listed, .count = count, .given = given};
    for (size_t i = 0; i < count; i++) {
        listed[i] = &hosts[i];
        hosts[i].answered = says[i].port >= 0;
        hosts[i].port = says[i].port > 0 ? (unsigned)says[i].port : 0;
        hosts[i].epoch = says[i].epoch;
        strcpy(hosts[i].master, says[i].port > 0 ? "h" : "");
        hosts[i].id[0] = says[i].id;
    }
}

/* port 0: none is named. */
static void expect(unsigned port, int64_t epoch, bool sure)
{
    const struct dibs__sentinel_vote vote = dibs__sentinel_count(&sentinel);

    assert_int_equal(vote.best ? vote.best->port : 0, port);
    assert_int_equal(vote.epoch, epoch);
    assert_int_equal(vote.sure, sure);
}

TEST(a_majority_of_the_sentinels_is_sure)
{
    static const struct {
        struct says says[3];
        unsigned port;
        bool sure;
    } rows[] = {
        {{{7, NO_EPOCH, 0}, {7, NO_EPOCH, 0}, {7, NO_EPOCH, 0}}, 7, true},
        {{{7, NO_EPOCH, 0}, {7, NO_EPOCH, 0}, {-1, 0, 0}}, 7, true},
        {{{7, NO_EPOCH, 0}, {-1, 0, 0}, {-1, 0, 0}}, 7, false},
        {{{7, NO_EPOCH, 0}, {0, NO_EPOCH, 0}, {0, NO_EPOCH, 0}}, 7, false},
        {{{7, NO_EPOCH, 0}, {8, NO_EPOCH, 0}, {8, NO_EPOCH, 0}}, 8, true},
        {{{7, NO_EPOCH, 0}, {8, NO_EPOCH, 0}, {9, NO_EPOCH, 0}}, 7, false},
        {{{0, NO_EPOCH, 0}, {-1, 0, 0}, {-1, 0, 0}}, 0, false},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        say(rows[i].says, 3, 3);
        expect(rows[i].port, NO_EPOCH, rows[i].sure);
    }
}

/* Half of them are none. */
TEST(half_of_the_sentinels_are_no_majority)
{
    static const struct says says[] = {{7, NO_EPOCH, 0}, {7, NO_EPOCH, 0}, {-1, 0, 0}, {-1, 0, 0}};

    say(says, 4, 4);
    expect(7, NO_EPOCH, false);
    say(says, 3, 3);
    expect(7, NO_EPOCH, true);
}

/* Those that the URL does not name count as well, as many as one of them knows of. */
TEST(a_sentinel_that_knows_of_others_makes_them_count)
{
    static const struct says says[] = {{7, NO_EPOCH, 0}, {7, NO_EPOCH, 0}, {-1, 0, 0}};

    say(says, 2, 1);
    expect(7, NO_EPOCH, true);
    hosts[1].others = 2;
    expect(7, NO_EPOCH, true);
    hosts[0].others = 3;
    expect(7, NO_EPOCH, false);
    hosts[0].others = 0;
    hosts[1].others = 4;
    expect(7, NO_EPOCH, false);
    say(says, 3, 1);
    hosts[2].others = 9; /* of an earlier round */
    expect(7, NO_EPOCH, true);
}

TEST(a_larger_epoch_wins_where_all_tell_theirs)
{
    static const struct {
        struct says says[3];
        unsigned port;
        int64_t epoch;
        bool sure;
    } rows[] = {
        {{{7, 1, 0}, {7, 1, 0}, {8, 2, 0}}, 8, 2, true},        {{{8, 2, 0}, {7, 1, 0}, {7, 1, 0}}, 8, 2, true},
        {{{7, 2, 0}, {7, 2, 0}, {8, 2, 0}}, 7, 2, true},        {{{8, 0, 0}, {7, 0, 0}, {7, 0, 0}}, 7, 0, true},
        {{{7, NO_EPOCH, 0}, {7, 1, 0}, {8, 2, 0}}, 7, 1, true}, {{{7, 1, 0}, {7, 3, 0}, {8, 2, 0}}, 7, 3, true},
        {{{8, 2, 0}, {-1, 0, 0}, {7, 1, 0}}, 8, 2, true},       {{{8, 2, 0}, {-1, 0, 0}, {-1, 0, 0}}, 8, 2, false},
        {{{7, 2, 0}, {-1, 0, 0}, {8, 2, 0}}, 7, 2, false},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        say(rows[i].says, 3, 3);
        expect(rows[i].port, rows[i].epoch, rows[i].sure);
    }
}

TEST(two_names_of_one_sentinel_are_one_vote)
{
    static const struct says says[] = {{7, NO_EPOCH, 'a'}, {7, NO_EPOCH, 'a'}, {-1, 0, 0}},
                             silent[] = {{0, NO_EPOCH, 'a'}, {7, NO_EPOCH, 'a'}, {7, NO_EPOCH, 'b'}},
                             unknown[] = {{7, NO_EPOCH, 0}, {7, NO_EPOCH, 0}, {-1, 0, 0}},
                             behind[] = {{7, NO_EPOCH, 'b'}, {7, NO_EPOCH, 'a'}, {7, NO_EPOCH, 'a'}};

    say(says, 3, 3);
    expect(7, NO_EPOCH, false);
    say(silent, 3, 3); /* only where the first of them names a master */
    expect(7, NO_EPOCH, true);
    say(unknown, 3, 3);
    expect(7, NO_EPOCH, true);
    say(behind, 3, 5);
    expect(7, NO_EPOCH, false);
}

/* The same port of another host is another master. */
TEST(a_master_is_a_host_and_a_port)
{
    static const struct says says[] = {{7, NO_EPOCH, 0}, {7, NO_EPOCH, 0}, {7, NO_EPOCH, 0}};

    say(says, 3, 3);
    strcpy(hosts[0].master, "i");
    const struct dibs__sentinel_vote vote = dibs__sentinel_count(&sentinel);
    assert_string_equal(vote.best->master, "h");
    strcpy(hosts[1].master, "j");
    expect(7, NO_EPOCH, false);
}

TESTS(NULL, NULL)
