/*
 * The sorted sets that the scripts use. They are stored as hashes whose values are the scores, which are whole numbers.
 * A command on a key of another type is not refused.
 */
#include "commands.h"
#include "keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t score_of(const struct sim_field *field)
{
    return sim_number(field->value.bytes);
}

static int compare(const void *one, const void *other)
{
    const struct sim_field *a = one, *b = other;
    int64_t by = score_of(a) - score_of(b);
    size_t size = a->name.size < b->name.size ? a->name.size : b->name.size;
    int text = memcmp(a->name.bytes, b->name.bytes, size);

    if (by)
        return by < 0 ? -1 : 1;
    return text ? text : (a->name.size > b->name.size) - (a->name.size < b->name.size);
}

static void sort(struct sim_object *set)
{
    if (set->count > 1)
        qsort(set->fields, set->count, sizeof *set->fields, compare);
}

static void set_score(struct sim_object *set, const struct sim_text *member, int64_t score)
{
    char digits[24];
    struct sim_text text = sim_text_of(digits, score);

    sim_set_field(set, member, &text);
}

struct sim_scored sim_sorted_add(struct sim_object *set, int count, const struct sim_text *words, bool known, bool adds)
{
    struct sim_scored result = {.has = false};

    for (int i = 0; i + 1 < count; i += 2) {
        const struct sim_field *field = sim_field(set, &words[i + 1]);
        int64_t score = sim_number(words[i].bytes) + (adds && field ? score_of(field) : 0);
        if (!field && known)
            continue;
        result.has = true;
        result.score = score;
        result.changed = result.changed || !field || score != score_of(field);
        result.added += !field;
        set_score(set, &words[i + 1], score);
    }
    return result;
}

static void put_member(struct sim_buffer *out, const struct sim_field *field, bool with_score)
{
    sim_put_bulk(out, field->name.bytes, field->name.size);
    if (with_score)
        sim_put_bulk(out, field->value.bytes, field->value.size);
}

void sim_sorted_range(struct sim_buffer *out, struct sim_object *set, int64_t first, int64_t last, bool with_scores)
{
    int64_t count = set ? (int64_t)set->count : 0;

    first = first < 0 ? first + count : first;
    last = last < 0 ? last + count : last;
    first = first < 0 ? 0 : first;
    last = last >= count ? count - 1 : last;
    if (set)
        sort(set);
    int64_t found = last < first ? 0 : last - first + 1;
    sim_put_head(out, '*', found * (with_scores ? 2 : 1));
    for (int64_t i = first; i < first + found; i++)
        put_member(out, &set->fields[i], with_scores);
}

static bool is_within(int64_t score, const char *least, const char *most)
{
    int64_t from = sim_number(least + (least[0] == '(')), to = sim_number(most + (most[0] == '('));

    return (least[0] == '(' ? score > from : score >= from) && (most[0] == '(' ? score < to : score <= to);
}

void sim_sorted_by_score(struct sim_buffer *out, struct sim_object *set, const char *least, const char *most,
                         int64_t limit)
{
    int64_t count = 0;

    if (set)
        sort(set);
    for (size_t i = 0; set && i < set->count; i++)
        count += is_within(score_of(&set->fields[i]), least, most);
    count = limit >= 0 && count > limit ? limit : count;
    sim_put_head(out, '*', count);
    for (size_t i = 0; set && i < set->count && count > 0; i++)
        if (is_within(score_of(&set->fields[i]), least, most)) {
            put_member(out, &set->fields[i], false);
            count--;
        }
}
