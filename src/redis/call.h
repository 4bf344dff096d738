/* One call of a script by a thread that waits for its answer. */
#ifndef DIBS_REDIS_CALL_H
#define DIBS_REDIS_CALL_H

#include "redis/channel.h"
#include "redis/scripts.h"

/* The words of a command, in arrays of the caller's. Pointers are kept to what is added, not copies. */
struct dibs__words {
    const char **words;
    size_t *sizes;
    int count, most;
};

void dibs__words_add(struct dibs__words *words, const char *bytes, size_t size);

/* Begins the words of a script: room for the first two, filled by dibs__script_command, and the number of keys. */
#define DIBS__SCRIPT_WORDS 3
void dibs__words_begin(struct dibs__words *words, char (*text)[12], size_t key_count);

/*
 * The command of a script whose words are there but for the first two, which
 * this fills: EVALSHA, or EVAL with the text where the server is not known to
 * have the script. From the text on, it is. With asking the command goes behind
 * ASKING, with the text for a call of one key. False: no memory. Afterwards, in
 * either case, dibs__script_command_end.
 */
bool dibs__script_command(struct dibs__command *out, enum dibs__script script, const struct dibs__link_view *view,
                          bool with_text, bool asking, const struct dibs__words *words);
void dibs__script_command_end(const struct dibs__command *command);

/*
 * Whether the reply says that the script must be sent as text: the server does
 * not have the script, or does not let us use EVALSHA, which is noted.
 */
bool dibs__script_wants_text(const redisReply *reply, struct dibs__channel *channel);

#define DIBS__CALL_KEYS 4
#define DIBS__CALL_ARGUMENTS 8
#define DIBS__CALL_WORDS (DIBS__SCRIPT_WORDS + DIBS__CALL_KEYS + DIBS__CALL_ARGUMENTS)
#define DIBS__CALL_NUMBERS 6

/* Stays where it is while it is used. */
struct dibs__call {
    enum dibs__script script;
    int number_count;
    bool tells_first; /* as of struct dibs__command; false at first */
    bool asking;      /* as of dibs__script_command; false at first */
    bool with_text;   /* dibs__call_finish's; the server has lost the script, so its text is sent */
    struct dibs__words words;
    const char *word_array[DIBS__CALL_WORDS];
    size_t size_array[DIBS__CALL_WORDS];
    char key_count[12];
    char numbers[DIBS__CALL_NUMBERS][24];
};

/* First the keys are added, of that number, then the arguments. */
void dibs__call_init(struct dibs__call *call, enum dibs__script script, size_t key_count);
void dibs__call_add(struct dibs__call *call, const char *text);
void dibs__call_add_number(struct dibs__call *call, int64_t number);

/*
 * Sends the call on the connection that view shows, as dibs__channel_send does.
 * NULL: nothing was sent, and the error is filled.
 */
struct dibs__request *dibs__call_begin(struct dibs__call *call, struct dibs__channel *channel,
                                       const struct dibs__link_view *view, int64_t deadline, struct dibs__error *error);

/*
 * Waits for the reply; where the server has lost the script, sends its text and
 * waits for that. DIBS_OK: exchange->reply is the caller's, an error reply too.
 * Else the connection broke or the deadline passed (DIBS_UNAVAILABLE), its bytes
 * were no reply (DIBS_STORE_ERROR) or memory is out (DIBS_NO_MEMORY);
 * exchange->unknown: the server may have run the script.
 */
dibs_status dibs__call_finish(struct dibs__call *call, struct dibs__channel *channel,
                              const struct dibs__link_view *view, struct dibs__request *request,
                              struct dibs__exchange *exchange);

/* What else must have a write than the server's memory, and for how long that is waited for. */
struct dibs__copies {
    bool on_disk;       /* the server's own disk (WAITAOF); else replicas (WAIT) */
    uint32_t count;     /* of those; 0 only asks whether waiting is possible */
    int64_t timeout_ms; /* more than 0 */
    const char *shown;  /* the server, in a sentence */
};

/*
 * Waits until so many have what was written on that connection. DIBS_OK: *count
 * of them do, maybe fewer than wanted. DIBS_DENIED, DIBS_STORE_ERROR: the server
 * refuses to wait. DIBS_UNAVAILABLE, DIBS_NO_MEMORY: there was no answer.
 * Nothing else may be in flight on the channel: it would wait as well.
 */
dibs_status dibs__call_wait(struct dibs__channel *channel, uint64_t serial, const struct dibs__copies *copies,
                            int64_t deadline, int64_t *count, struct dibs__error *error);

#endif
