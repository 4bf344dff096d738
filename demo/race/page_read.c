#include <stdlib.h>
#include <string.h>

#include "race/page.h"
#include "ways/way.h"

/* What the lines are about at the moment. */
struct reading {
    struct page *page;
    struct page_way *way;
    struct page_run *run;
};

static void copy(char *out, size_t size, const char *text)
{
    snprintf(out, size, "%s", text);
}

/* A way may come twice, with its race and with its scenes. */
static void begin_way(struct reading *r, const char *text)
{
    static struct page_way none;

    r->run = NULL;
    r->way = &none;
    if (r->page->way_count < PAGE_WAYS) {
        r->way = &r->page->ways[r->page->way_count++];
        r->way->number = (int)strtol(text, NULL, 10);
    }
}

static void name_way(struct reading *r, const char *name)
{
    struct page *page = r->page;

    for (size_t i = 0; i + 1 < page->way_count; i++)
        if (strcmp(page->ways[i].name, name) == 0) {
            r->way = &page->ways[i];
            memset(&page->ways[--page->way_count], 0, sizeof *page->ways);
            return;
        }
    copy(r->way->name, sizeof r->way->name, name);
}

static void begin_run(struct reading *r, const char *text)
{
    r->run = NULL;
    if (r->way->run_count >= PAGE_RUNS)
        return;
    r->run = &r->way->runs[r->way->run_count++];
    if (strncmp(text, "scene ", 6) == 0)
        copy(r->run->title, sizeof r->run->title, text + 6);
    r->run->holds = calloc(PAGE_LANES, sizeof *r->run->holds);
    r->run->marks = calloc(PAGE_LANES, sizeof *r->run->marks);
}

/* ---------------------------------------------------------- lines of a run */

/* The next word of the text, which moves behind it. False: there is none. */
static bool next_word(const char **text, char *out, size_t size)
{
    size_t length;

    *text += strspn(*text, " ");
    length = strcspn(*text, " ");
    if (length == 0)
        return false;
    snprintf(out, size, "%.*s", (int)length, *text);
    *text += length;
    return true;
}

static bool next_numbers(const char **text, double *out, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char *end;
        out[i] = strtod(*text, &end);
        if (end == *text)
            return false;
        *text = end;
    }
    return true;
}

static void read_figure(struct page_run *run, const char *text)
{
    struct page_number *number = &run->figures[run->figure_count];

    if (run->figure_count < PAGE_FIGURES && next_word(&text, number->name, sizeof number->name) &&
        next_numbers(&text, &number->value, 1))
        run->figure_count++;
}

/* Lines that are a word and a number are kept as figures. */
static void read_number(struct page_run *run, const char *word, const char *text)
{
    char figure[PAGE_LINE * 2];

    snprintf(figure, sizeof figure, "%s %s", word, text);
    read_figure(run, figure);
}

static void read_extra(struct page_run *run, const char *text)
{
    struct page_number *extra = &run->extras[run->extra_count];
    double numbers[2];

    if (run->extra_count >= PAGE_EXTRAS || !next_numbers(&text, numbers, 2) || *text != ' ')
        return;
    extra->good = numbers[0] > 0;
    extra->value = numbers[1];
    copy(extra->name, sizeof extra->name, text + 1);
    run->extra_count++;
}

static void read_hold(struct page_run *run, const char *text)
{
    double numbers[8];

    if (!run->holds || run->hold_count >= PAGE_LANES || !next_numbers(&text, numbers, 8))
        return;
    run->holds[run->hold_count++] = (struct page_hold){
        .racer = (unsigned)numbers[0],
        .crew = (unsigned)numbers[1],
        .arrived = numbers[2] / 1000,
        .begin = numbers[3] / 1000,
        .end = numbers[4] / 1000,
        .lease_end = numbers[5] / 1000,
        .worked = numbers[6] > 0,
        .item = (unsigned)numbers[7],
    };
}

static void read_mark(struct page_run *run, const char *text)
{
    struct page_mark mark;
    double racer;

    if (!run->marks || run->mark_count >= PAGE_LANES || !next_numbers(&text, &racer, 1) ||
        !next_word(&text, mark.kind, sizeof mark.kind) || !next_numbers(&text, &mark.at, 1))
        return;
    mark.racer = (unsigned)racer;
    mark.at /= 1000;
    run->marks[run->mark_count++] = mark;
}

static void read_of_run(struct page_run *run, const char *word, const char *text)
{
    if (strcmp(word, "figure") == 0 || strcmp(word, "setting") == 0)
        read_figure(run, text);
    else if (strcmp(word, "extra") == 0)
        read_extra(run, text);
    else if (strcmp(word, "hold") == 0)
        read_hold(run, text);
    else if (strcmp(word, "mark") == 0)
        read_mark(run, text);
    else if (strcmp(word, "words") == 0)
        copy(run->words, sizeof run->words, text);
    else if (strcmp(word, "counts") == 0)
        copy(run->counts, sizeof run->counts, text);
    else
        read_number(run, word, text);
}

/* --------------------------------------------------------------- the file */

static void read_of_way(struct reading *r, const char *word, const char *text)
{
    struct page_way *way = r->way;

    if (strcmp(word, "name") == 0)
        name_way(r, text);
    else if (strcmp(word, "title") == 0)
        copy(way->title, sizeof way->title, text);
    else if (strcmp(word, "text") == 0)
        copy(way->text, sizeof way->text, text);
    else if (strcmp(word, "source") == 0)
        copy(way->source, sizeof way->source, text);
    else if (strcmp(word, "missing") == 0)
        copy(way->missing, sizeof way->missing, text);
    else if (strcmp(word, "sound") == 0)
        way->sound = *text == '1';
    else if (strcmp(word, "run") == 0)
        begin_run(r, text);
    else if (strcmp(word, "end") == 0)
        r->run = NULL;
    else if (r->run)
        read_of_run(r->run, word, text);
}

static void read_line(struct reading *r, char *line)
{
    char *text = strchr(line, ' ');

    if (text)
        *text++ = '\0';
    else
        text = line + strlen(line);
    if (strcmp(line, "way") == 0)
        begin_way(r, text);
    else if (r->way)
        read_of_way(r, line, text);
    else if (strcmp(line, "date") == 0)
        copy(r->page->date, sizeof r->page->date, text);
    else if (strcmp(line, "server") == 0)
        copy(r->page->server, sizeof r->page->server, text);
}

struct page *page_read(FILE *in)
{
    struct reading r = {.page = calloc(1, sizeof *r.page)};
    char line[PAGE_LINE];
    bool good = fgets(line, sizeof line, in) && strcmp(line, "dibs-race 1\n") == 0;

    if (!r.page || !good) {
        fprintf(stderr, r.page ? "this is no file of results\n" : "out of memory\n");
        free(r.page);
        return NULL;
    }
    while (fgets(line, sizeof line, in)) {
        line[strcspn(line, "\n")] = '\0';
        read_line(&r, line);
    }
    return r.page;
}

void page_free(struct page *page)
{
    for (size_t i = 0; page && i < page->way_count; i++)
        for (size_t j = 0; j < page->ways[i].run_count; j++) {
            free(page->ways[i].runs[j].holds);
            free(page->ways[i].runs[j].marks);
        }
    free(page);
}

/* ----------------------------------------------------------------- figures */

static const struct page_number *figure_of(const struct page_run *run, const char *name)
{
    for (size_t i = 0; i < run->figure_count; i++)
        if (strcmp(run->figures[i].name, name) == 0)
            return &run->figures[i];
    return NULL;
}

bool page_has(const struct page_run *run, const char *name)
{
    return figure_of(run, name) != NULL;
}

double page_figure(const struct page_run *run, const char *name)
{
    const struct page_number *figure = figure_of(run, name);

    return figure ? figure->value : 0;
}

const struct page_run *page_race(const struct page_way *way)
{
    for (size_t i = 0; i < way->run_count; i++)
        if (!way->runs[i].title[0])
            return &way->runs[i];
    return NULL;
}

bool page_miscounted(const struct page_run *run)
{
    return (unsigned)page_figure(run, "flaws") & FLAW_COUNT;
}
