/*
 * One call of a script by a thread that waits for its answer; the words of scripts that the scheduler sends; and WAIT
 * and WAITAOF.
 */
#ifndef DIBS_REDIS_CALL_H
#define DIBS_REDIS_CALL_H

#include "redis/channel.h"
#include "redis/scripts.h"

/* The words of a command, in arrays of the caller. What is added is not copied: its bytes must stay valid. */
struct dibs__words {
    const char **words;
    size_t *sizes;
    int count, most;
};

void dibs__words_add(struct dibs__words *words, const char *bytes, size_t size);

/*
 * Begins the words of a script: leaves room for the first two, which dibs__script_command fills, and adds the number of
 * keys.
 */
#define DIBS__SCRIPT_WORDS 3
void dibs__words_begin(struct dibs__words *words, char (*text)[12], size_t key_count);

/*
 * Makes the command of a script from its words, of which this fills the first two: EVALSHA and the id, or EVAL and the
 * text if the server is not known to have the script. Once the text is sent, the server is known to have it. asking:
 * the command goes behind ASKING, with the text for a call of one key. False: no memory. In either case the caller must
 * call dibs__script_command_end afterwards.
 */
bool dibs__script_command(struct dibs__command *out, enum dibs__script script, const struct dibs__link_view *view,
                          bool with_text, bool asking, const struct dibs__words *words);
void dibs__script_command_end(const struct dibs__command *command);

/*
 * Whether the reply says that the script must be sent as text: the server does not have the script, or does not let the
 * account use EVALSHA, which is noted.
 */
bool dibs__script_wants_text(const redisReply *reply, struct dibs__channel *channel);

#define DIBS__CALL_KEYS 4
#define DIBS__CALL_ARGUMENTS 8
#define DIBS__CALL_WORDS (DIBS__SCRIPT_WORDS + DIBS__CALL_KEYS + DIBS__CALL_ARGUMENTS)
#define DIBS__CALL_NUMBERS 6

/* Must stay in place while it is used. */
struct dibs__call {
    enum dibs__script script;
    int number_count;
    bool tells_first; /* as in struct dibs__command; false at first */
    bool asking;      /* as for dibs__script_command; false at first */
    bool with_text;   /* set by dibs__call_finish; the server has lost the script, so its text is sent */
    struct dibs__words words;
    const char *word_array[DIBS__CALL_WORDS];
    size_t size_array[DIBS__CALL_WORDS];
    char key_count[12];
    char numbers[DIBS__CALL_NUMBERS][24];
};

/* After this, key_count keys must be added first, and then the arguments. */
void dibs__call_init(struct dibs__call *call, enum dibs__script script, size_t key_count);
void dibs__call_add(struct dibs__call *call, const char *text);
void dibs__call_add_number(struct dibs__call *call, int64_t number);

/*
 * Sends the call on the connection that view shows, as dibs__channel_send does. NULL: nothing was sent, and the error
 * is filled.
 */
struct dibs__request *dibs__call_begin(struct dibs__call *call, struct dibs__channel *channel,
                                       const struct dibs__link_view *view, int64_t deadline, struct dibs__error *error);

/*
 * Waits for the reply. If the server has lost the script, sends its text and waits for that reply. DIBS_OK:
 * exchange->reply, which may be an error reply, belongs to the caller. Otherwise the connection broke or the deadline
 * passed (DIBS_UNAVAILABLE), the bytes were no reply (DIBS_STORE_ERROR), or memory ran out (DIBS_NO_MEMORY).
 * exchange->unknown: the server may have run the script.
 */
dibs_status dibs__call_finish(struct dibs__call *call, struct dibs__channel *channel,
                              const struct dibs__link_view *view, struct dibs__request *request,
                              struct dibs__exchange *exchange);

/* Which other copies must have a write besides the server's memory, and how long to wait for them. */
struct dibs__copies {
    bool on_disk;       /* the copy is on the server's own disk (WAITAOF); else on replicas (WAIT) */
    uint32_t count;     /* number of copies; 0 only asks whether waiting is possible */
    int64_t timeout_ms; /* more than 0 */
    const char *shown;  /* name of the server in sentences */
};

/*
 * Waits until that many copies have what was written on the connection of that serial. DIBS_OK: *count copies have it,
 * perhaps fewer than wanted. DIBS_DENIED, DIBS_STORE_ERROR: the server refuses to wait. DIBS_UNAVAILABLE,
 * DIBS_NO_MEMORY: there was no answer. Nothing else may be in flight on the channel, because it would wait as well.
 */
dibs_status dibs__call_wait(struct dibs__channel *channel, uint64_t serial, const struct dibs__copies *copies,
                            int64_t deadline, int64_t *count, struct dibs__error *error);

#endif
