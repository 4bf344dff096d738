/*
 * The tokens of a runtime, dibs:LABEL:HOST:PID:THREAD:RUNTIME:SEQUENCE. Only the thread and the sequence differ from
 * token to token, so a lease keeps only these; the text is written when the store must have it. The token of an attempt
 * that wants to share the lock ends in ~LIMIT, so that whoever has the token knows its kind: the queue, a retraction,
 * the holders' list. The token of a lease that the process may keep ends in !: whoever asks for the lock recalls the
 * lease.
 */
#ifndef DIBS_CORE_TOKEN_H
#define DIBS_CORE_TOKEN_H

#include <stdbool.h>

#include "store/store.h"

struct dibs__token {
    uint64_t thread;   /* the thread that asked for the lease, for administrators */
    uint64_t sequence; /* unique within the runtime */
    uint32_t limit;    /* only if `shared` */
    bool shared;       /* the lock is asked for as shared */
    bool keeps;        /* the process may keep the lease; not if `shared` */
};

/* What all tokens of a runtime have in common. Read-only once it is made. */
struct dibs__token_form {
    char head[DIBS__TOKEN_MAX]; /* dibs:LABEL:HOST:PID: */
    char tail[DIBS__TOKEN_MAX]; /* :RUNTIME: */
    size_t head_size, tail_size;
    size_t most; /* the size in bytes of the longest token, with the NUL */
};

/* The texts must be short enough for every token to fit into DIBS__TOKEN_MAX. */
void dibs__token_form_init(struct dibs__token_form *form, const char *label, const char *host, long pid,
                           const char *runtime);

/* Writes at most form->most bytes, with the NUL, and returns the address of the NUL. */
char *dibs__token_write(const struct dibs__token_form *form, const struct dibs__token *token, char *out);

/* Reads the sequence of a token, behind which only ~LIMIT or ! may come. False: the text has no sequence. */
bool dibs__token_sequence(const char *text, uint64_t *out);

#endif
