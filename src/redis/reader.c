#include "redis/reader.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/once.h"
#include "base/require.h"
#include "redis/slot.h"

/*
 * hiredis would allocate all elements of a larger array at once. In CLUSTER SLOTS, each slot may be a range of its own.
 */
#define ELEMENTS_MAX DIBS__SLOTS

#if HIREDIS_MAJOR >= 1
typedef size_t element_count;
#else
typedef int element_count;
#endif

static redisReplyObjectFunctions functions, native_functions; /* read-only once made */

static void *create_array(const redisReadTask *task, element_count count)
{
    struct dibs__reader *reader = task->privdata;

    if (count <= ELEMENTS_MAX)
        return native_functions.createArray(task, count);
    reader->too_large = true; /* hiredis will report a lack of memory, which is not the reason */
    return NULL;
}

/* ------------------------------------------------------- which hiredis it is */

/*
 * The place of the functions in a reader, or one beyond where they are expected. The search goes from front to back, so
 * that nothing beyond the end of a smaller reader is read.
 */
static size_t place_of_functions(const redisReader *reader, const redisReplyObjectFunctions *wanted)
{
    const redisReplyObjectFunctions *there = NULL;
    size_t at = 0;

    for (; at <= offsetof(redisReader, fn); at += sizeof there) {
        memcpy(&there, (const char *)reader + at, sizeof there);
        if (there == wanted)
            break;
    }
    return at;
}

/* All releases that have the same layout of a reader have the same replies, tasks and functions. */
dibs_status dibs__reader_check(struct dibs__error *error)
{
    static redisReplyObjectFunctions none;
    redisReader *reader = redisReaderCreateWithFunctions(&none);

    if (!reader)
        return dibs__error_set(error, DIBS_NO_MEMORY, "no memory for a connection");
    bool fits = place_of_functions(reader, &none) == offsetof(redisReader, fn);
    redisReaderFree(reader);
    if (fits)
        return DIBS_OK;
    return dibs__error_set(error, DIBS_INVALID,
                           "the program has another hiredis than %d.%d.%d, with which dibs was built: use a libdibs.so "
                           "that has a hiredis inside, or build dibs with the program's hiredis",
                           HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH);
}

/* --------------------------------------------------------------- lifecycle */

/* False: no memory. */
static bool take_functions(void)
{
    redisReader *reader = redisReaderCreate();

    if (!reader)
        return false;
    native_functions = functions = *reader->fn;
    functions.createArray = create_array;
    redisReaderFree(reader);
    return true;
}

bool dibs__reader_init(struct dibs__reader *reader)
{
    static struct dibs__once once;

    *reader = (struct dibs__reader){.native = NULL};
    if (dibs__once(&once, take_functions))
        reader->native = redisReaderCreate();
    if (!reader->native)
        return false;
    reader->native->fn = &functions;
    reader->native->privdata = reader;
    return true;
}

void dibs__reader_end(struct dibs__reader *reader)
{
    if (reader->native)
        redisReaderFree(reader->native);
}
