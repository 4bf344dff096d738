/*
 * Give the fence to an SQL database, which then refuses a process that lost the lock without knowing.
 *
 *     cc fence_sql.c -o fence_sql $(pkg-config --cflags --libs dibs sqlite3)
 *     DIBS_URL=redis://127.0.0.1 ./fence_sql shop.db alice 10
 *
 * The guard is a column and a condition. Both statements are the same in PostgreSQL and SQLite; elsewhere write ? for
 * $n. The statement that changes a row also compares and stores its fence, so nothing can happen in between.
 */
#include <dibs.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define TABLE                                                                                                          \
    "CREATE TABLE IF NOT EXISTS account"                                                                               \
    " (id TEXT PRIMARY KEY, balance BIGINT NOT NULL DEFAULT 0, fence BIGINT NOT NULL DEFAULT 0)"

/* A fence that is equal is ours: one hold may change the row several times. */
#define DEPOSIT                                                                                                        \
    "INSERT INTO account (balance, fence, id) VALUES ($1, $2, $3)"                                                     \
    " ON CONFLICT (id) DO UPDATE SET balance = account.balance + $1, fence = $2 WHERE account.fence <= $2"

/* The number of rows that were changed: 0 if the row has seen a larger fence; -1: an error. */
static int deposit(sqlite3 *db, const char *id, long amount, uint64_t fence)
{
    sqlite3_stmt *statement;

    if (sqlite3_prepare_v2(db, DEPOSIT, -1, &statement, NULL) != SQLITE_OK)
        return -1;
    sqlite3_bind_int64(statement, 1, amount);
    sqlite3_bind_int64(statement, 2, (sqlite3_int64)fence); /* fences are below 2^63 */
    sqlite3_bind_text(statement, 3, id, -1, SQLITE_STATIC);
    int changes = sqlite3_step(statement) == SQLITE_DONE ? sqlite3_changes(db) : -1;
    sqlite3_finalize(statement);
    return changes;
}

static int deposit_alone(dibs_runtime *rt, sqlite3 *db, const char *id, long amount)
{
    dibs_hold hold;

    if (dibs_lock(rt, id) != DIBS_OK || dibs_hold_of(rt, id, &hold) != DIBS_OK) {
        fprintf(stderr, "no lock: %s\n", dibs_last_error());
        return 1;
    }
    sleep(3); /* work; a process that is stopped here for longer than its lease has lost the lock */
    int changes = deposit(db, id, amount, hold.fence);
    if (changes < 0)
        fprintf(stderr, "the database: %s\n", sqlite3_errmsg(db));
    else
        puts(changes ? "deposited" : "refused: a later holder of the lock was here");
    dibs_unlock(rt, id);
    return changes == 1 ? 0 : 1;
}

int main(int argc, char **argv)
{
    dibs_runtime *rt;
    sqlite3 *db;

    if (argc != 4 || sqlite3_open(argv[1], &db) != SQLITE_OK || sqlite3_busy_timeout(db, 5000) != SQLITE_OK ||
        sqlite3_exec(db, TABLE, NULL, NULL, NULL) != SQLITE_OK) {
        fprintf(stderr, "usage: %s DATABASE ACCOUNT AMOUNT\n", argv[0]);
        return 2;
    }
    if (dibs_open(&rt, NULL) != DIBS_OK) {
        fprintf(stderr, "no store: %s\n", dibs_last_error());
        return 1;
    }
    int result = deposit_alone(rt, db, argv[2], strtol(argv[3], NULL, 10));
    dibs_close(rt);
    sqlite3_close(db);
    return result;
}
