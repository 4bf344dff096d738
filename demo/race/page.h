/*
 * The gallery as one page of HTML that needs nothing else: made of a results file (results.h) and of the sources of the
 * ways. page_read.c reads the results, page.c writes the page, lanes.c draws what happened, lane by lane.
 */
#ifndef DIBS_DEMO_PAGE_H
#define DIBS_DEMO_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { PAGE_WAYS = 64, PAGE_RUNS = 10, PAGE_LANES = 1000, PAGE_LINE = 1000, PAGE_FIGURES = 48, PAGE_EXTRAS = 8 };

struct page_hold {
    unsigned racer, crew;
    double arrived, begin, end, lease_end; /* ms since the round began; lease_end 0: not known */
    bool worked;
    unsigned item; /* which of several locks */
};

struct page_mark {
    unsigned racer;
    char kind[16]; /* as in results.h */
    double at;     /* ms */
};

struct page_number { /* a setting, a figure, or one of the way's own numbers */
    char name[64];
    double value;
    bool good;
};

struct page_run {
    char title[200]; /* of the scene; "": a race by chance */
    char words[400], counts[400];
    struct page_number figures[PAGE_FIGURES], extras[PAGE_EXTRAS];
    size_t figure_count, extra_count, hold_count, mark_count;
    struct page_hold *holds;
    struct page_mark *marks;
};

struct page_way {
    int number;
    bool sound;
    char name[40], title[100], text[600], source[200];
    char missing[200]; /* why it could not be run; "": it was */
    struct page_run runs[PAGE_RUNS];
    size_t run_count;
};

struct page {
    char date[40], server[40];
    struct page_way ways[PAGE_WAYS];
    size_t way_count;
};

/* Reads a results file. NULL: no memory, or this is no such file; why was said on stderr. page_free frees it. */
struct page *page_read(FILE *in);
void page_free(struct page *page);

/* A setting or figure by its name; 0 where there is none, because it would mean nothing. */
double page_figure(const struct page_run *run, const char *name);
bool page_has(const struct page_run *run, const char *name);

/* The race by chance; NULL: there was none. */
const struct page_run *page_race(const struct page_way *way);

/* Whether a round ended elsewhere than at the limit; below it is no flaw if racers were told that they can't be let in.
 */
bool page_miscounted(const struct page_run *run);

/* Writes the page. The sources of the ways are read below the folder `top`. Errors of out are the caller's. */
void page_write(FILE *out, const struct page *page, const char *top);

/* Its parts: the table (page_table.c), and a way's section (page_way.c). */
void page_table(FILE *out, const struct page *page);
void page_section(FILE *out, const struct page_way *way, const char *top);

/* The text with what HTML needs escaped; page_title begins with a capital, but where the text is "dibs". */
void page_escape(FILE *out, const char *text);
void page_title(FILE *out, const char *text);

#endif
