/*
 * A hiredis of the kind that is not installed: its readers are those of 0.14 and before, or of 1.0 and later. They can
 * be created and freed; any other call ends the program. Must be included by only one file of a program, because it
 * defines hiredis' functions for the whole program.
 */
#ifndef DIBS_TEST_OTHER_HIREDIS_H
#define DIBS_TEST_OTHER_HIREDIS_H

#include <hiredis/hiredis.h>
#include <stdlib.h>

struct other_reader {
    int err;
    char errstr[128];
    char *buf;
    size_t pos, len, maxbuf;
#if HIREDIS_MAJOR == 0
    long long maxelements;
    void **task;
    int tasks;
#else
    struct {
        int type, elements, idx;
        void *obj, *parent, *privdata;
    } rstack[9];
#endif
    int ridx;
    void *reply;
    void *fn, *privdata;
};

redisReader *redisReaderCreateWithFunctions(redisReplyObjectFunctions *functions)
{
    struct other_reader *reader = calloc(1, sizeof *reader);

    if (reader)
        reader->fn = functions;
    return (redisReader *)(void *)reader;
}

redisReader *redisReaderCreate(void)
{
    static redisReplyObjectFunctions functions;

    return redisReaderCreateWithFunctions(&functions);
}

void redisReaderFree(redisReader *reader)
{
    free(reader);
}

int redisReaderFeed(redisReader *reader, const char *bytes, size_t size)
{
    (void)reader, (void)bytes, (void)size;
    abort();
}

int redisReaderGetReply(redisReader *reader, void **reply)
{
    (void)reader, (void)reply;
    abort();
}

void freeReplyObject(void *reply)
{
    (void)reply;
    abort();
}

#endif
