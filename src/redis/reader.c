#include "redis/reader.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/once.h"
#include "base/require.h"
#include "redis/slot.h"

/* For an array that claims more, hiredis would allocate them all at once. In CLUSTER SLOTS each slot may be a range of
 * its own. */
#define ELEMENTS_MAX DIBS__SLOTS
#define SHORT 4 /* elements of an array that fits into a block */

#if HIREDIS_MAJOR >= 1
typedef size_t element_count;
#else
typedef int element_count;
#endif

/* An integer or a short array. */
struct dibs__reply_block {
    redisReply reply; /* the first member: a reply of either kind is a block */
    redisReply *elements[SHORT];
    struct dibs__reply_pool *pool;
    struct dibs__reply_block *next; /* in the pool, or spare */
};

_Static_assert(offsetof(struct dibs__reply_block, reply) == 0, "a reply in a block is at its begin");

static redisReplyObjectFunctions functions, native_functions; /* read-only once made */

/* ------------------------------------------------------------------- blocks */

static bool is_block(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_INTEGER || (reply->type == REDIS_REPLY_ARRAY && reply->elements <= SHORT);
}

/*
 * One thread takes all that was returned, so none of these can be taken by
 * another meanwhile and returned again.
 */
static struct dibs__reply_block *take_block(struct dibs__reader *reader)
{
    struct dibs__reply_block *block;

    if (!reader->spare)
        reader->spare = atomic_exchange_explicit(&reader->pool->returned, NULL, memory_order_acquire);
    block = reader->spare;
    if (block)
        reader->spare = block->next;
    else
        block = malloc(sizeof *block);
    if (!block)
        return NULL;
    memset(&block->reply, 0, sizeof block->reply);
    block->pool = reader->pool;
    return block;
}

static void return_block(struct dibs__reply_block *block)
{
    struct dibs__reply_block *first = atomic_load_explicit(&block->pool->returned, memory_order_relaxed);

    do
        block->next = first;
    while (!atomic_compare_exchange_weak_explicit(&block->pool->returned, &first, block, memory_order_release,
                                                  memory_order_relaxed));
}

static void free_blocks(struct dibs__reply_block *block)
{
    while (block) {
        struct dibs__reply_block *next = block->next;
        free(block);
        block = next;
    }
}

void dibs__reply_pool_empty(struct dibs__reply_pool *pool)
{
    free_blocks(atomic_exchange(&pool->returned, NULL));
}

/* As deep as the reply is nested: hiredis reads no more than nine levels. */
void dibs__reply_free(redisReply *reply) /* NOLINT(misc-no-recursion) */
{
    if (!reply)
        return;
    if (reply->type == REDIS_REPLY_ARRAY) {
        for (size_t i = 0; i < reply->elements; i++) {
            dibs__reply_free(reply->element[i]);
            reply->element[i] = NULL; /* freeReplyObject takes it for an element that was never read */
        }
    }
    if (is_block(reply))
        return_block((struct dibs__reply_block *)(void *)reply);
    else
        freeReplyObject(reply);
}

static void free_object(void *reply)
{
    dibs__reply_free(reply);
}

/* ------------------------------------------------------- what hiredis calls */

/* NULL stands for a lack of memory. */
static void *add_to_parent(const redisReadTask *task, redisReply *reply)
{
    if (reply && task->parent) {
        redisReply *parent = task->parent->obj;
        parent->element[task->idx] = reply;
    }
    return reply;
}

static void *create_integer(const redisReadTask *task, long long value)
{
    struct dibs__reply_block *block = take_block(task->privdata);

    if (!block)
        return NULL;
    block->reply.type = REDIS_REPLY_INTEGER;
    block->reply.integer = value;
    return add_to_parent(task, &block->reply);
}

static void *create_array(const redisReadTask *task, element_count count)
{
    struct dibs__reader *reader = task->privdata;

    if (count > ELEMENTS_MAX) {
        reader->too_large = true; /* not memory is what is lacking */
        return NULL;
    }
    if (count > SHORT || task->type != REDIS_REPLY_ARRAY)
        return native_functions.createArray(task, count);
    struct dibs__reply_block *block = take_block(reader);
    if (!block)
        return NULL;
    memset(block->elements, 0, sizeof block->elements);
    block->reply.type = REDIS_REPLY_ARRAY;
    block->reply.elements = (size_t)count;
    block->reply.element = block->elements;
    return add_to_parent(task, &block->reply);
}

/* ------------------------------------------------------- which hiredis it is */

/*
 * Where in a reader its functions are; or a place behind where they are
 * expected. The search begins in front, so nothing is read behind the end of a
 * smaller reader.
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

/* All releases in which a reader looks the same have the same replies, tasks and functions. */
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
    functions.createInteger = create_integer;
    functions.createArray = create_array;
    functions.freeObject = free_object;
    redisReaderFree(reader);
    return true;
}

bool dibs__reader_init(struct dibs__reader *reader, struct dibs__reply_pool *pool)
{
    static struct dibs__once once;

    *reader = (struct dibs__reader){.pool = pool};
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
    while (reader->spare) {
        struct dibs__reply_block *block = reader->spare;
        reader->spare = block->next;
        return_block(block);
    }
}
