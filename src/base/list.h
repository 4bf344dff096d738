/*
 * Lists that are linked through their members, so that joining one needs no memory. A list is the pointer to its first
 * member, NULL if it is empty, and is walked by `next`, which is NULL in the last member. `previous` of the first
 * member is the last one; in what is in no list, and all zero at first, `previous` is NULL. A list has no mutex of its
 * own. These are macros, and not functions, so that members keep their type, and clang's analysis sees which guarded
 * fields they touch.
 *
 *     struct job {
 *         DIBS__LINKS(struct job) links;
 *     };
 *     struct job *jobs = NULL;
 *     DIBS__LIST_APPEND(jobs, job, links);
 *     for (const struct job *at = jobs; at; at = at->links.next)
 *         ...
 *     DIBS__LIST_REMOVE(jobs, job, links);
 */
#ifndef DIBS_BASE_LIST_H
#define DIBS_BASE_LIST_H

#define DIBS__LINKS(type)                                                                                              \
    struct {                                                                                                           \
        type *next, *previous;                                                                                         \
    }

/* The member must be in no list. The arguments are evaluated more than once. */
#define DIBS__LIST_APPEND(list, member, links)                                                                         \
    do {                                                                                                               \
        (member)->links.next = NULL;                                                                                   \
        if (list) {                                                                                                    \
            (member)->links.previous = (list)->links.previous;                                                         \
            (list)->links.previous->links.next = (member);                                                             \
        } else {                                                                                                       \
            (list) = (member);                                                                                         \
        }                                                                                                              \
        (list)->links.previous = (member);                                                                             \
    } while (0)

/* The member must be in this list. */
#define DIBS__LIST_REMOVE(list, member, links)                                                                         \
    do {                                                                                                               \
        if ((member) == (list))                                                                                        \
            (list) = (member)->links.next;                                                                             \
        else                                                                                                           \
            (member)->links.previous->links.next = (member)->links.next;                                               \
        if ((member)->links.next)                                                                                      \
            (member)->links.next->links.previous = (member)->links.previous;                                           \
        else if (list)                                                                                                 \
            (list)->links.previous = (member)->links.previous;                                                         \
        (member)->links.previous = NULL;                                                                               \
    } while (0)

#endif
