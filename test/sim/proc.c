#include "proc.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net.h"

struct sim_proc *sim_procs;

/* ------------------------------------------------------------------ the library */

static struct {
    char *data; /* its variables, which are those of one process at a time, */
    size_t data_size;
    char *data_first; /* and as they are when a process begins */
    const char *tls_first;
    size_t tls_size, tls_first_size;
} library;

static struct sim_proc *inside; /* whose variables they are */

/* What is written to once the library is loaded begins behind what the loader has relocated. */
static int look_at(struct dl_phdr_info *info, size_t size, void *arg)
{
    char *end = NULL;

    if (info->dlpi_addr != ((const struct link_map *)arg)->l_addr)
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        char *at = (char *)(info->dlpi_addr + part->p_vaddr);
        if (part->p_type == PT_LOAD && (part->p_flags & PF_W)) {
            end = at + part->p_memsz;
        } else if (part->p_type == PT_GNU_RELRO) {
            library.data = at + part->p_memsz;
        } else if (part->p_type == PT_TLS) {
            library.tls_first = at;
            library.tls_first_size = part->p_filesz;
            library.tls_size = part->p_memsz;
        }
    }
    library.data_size = (size_t)(end - library.data);
    return 1;
}

void sim_become(struct sim_thread *thread)
{
    sim_current = thread;
    if (!thread || thread->proc == inside)
        return;
    if (inside)
        memcpy(inside->data, library.data, library.data_size);
    inside = thread->proc;
    memcpy(library.data, inside->data, library.data_size);
}

/* ------------------------------------------------------------------- memory */

/* Before each block that a process has. */
struct block {
    struct sim_proc *owner;
    size_t size;
};

double sim_scarce;

/* What is not initialised, or is free, is noticed, and is always the same. */
static void spoil(struct block *block, int byte)
{
    memset(block + 1, byte, block->size < 256 ? block->size : 256);
}

void *sim_malloc(size_t size)
{
    if (sim_scarce > 0 && sim_chance(SIM_SCHEDULE, sim_scarce))
        return NULL;
    struct block *block = malloc(sizeof *block + size);
    if (!block)
        return NULL;
    *block = (struct block){sim_current->proc, size};
    block->owner->blocks++;
    spoil(block, 0xa5);
    return block + 1;
}

void sim_free(void *bytes)
{
    struct block *block = bytes;

    if (!block--)
        return;
    spoil(block, 0x5a);
    block->owner->blocks--;
    free(block);
}

void *sim_calloc(size_t count, size_t size)
{
    void *bytes = sim_malloc(count * size);

    return bytes ? memset(bytes, 0, count * size) : NULL;
}

void *sim_realloc(void *bytes, size_t size)
{
    if (!bytes)
        return sim_malloc(size);
    size_t had = ((struct block *)bytes - 1)->size;
    if (size <= had)
        return bytes;
    void *grown = sim_malloc(size);
    if (grown) {
        memcpy(grown, bytes, had);
        sim_free(bytes);
    }
    return grown;
}

char *sim_strndup(const char *text, size_t size)
{
    size_t length = strnlen(text, size);
    char *copy = sim_malloc(length + 1);

    if (copy) {
        memcpy(copy, text, length);
        copy[length] = '\0';
    }
    return copy;
}

char *sim_strdup(const char *text)
{
    return sim_strndup(text, SIZE_MAX);
}

/* ------------------------------------------------------------ thread-local data */

void *sim_proc_tls(void)
{
    char *tls = aligned_alloc(64, (library.tls_size + 63) / 64 * 64);

    memset(tls, 0, library.tls_size);
    memcpy(tls, library.tls_first, library.tls_first_size);
    return tls;
}

struct tls_index {
    unsigned long module, offset;
};

/* The library's code asks for the address of a thread-local variable. */
void *sim_tls_get_addr(const struct tls_index *index)
{
    return (char *)sim_current->tls + index->offset;
}

int sim_key_create(unsigned *key, void (*destructor)(void *))
{
    struct sim_proc *proc = sim_current->proc;

    if (proc->keys == SIM_KEYS)
        return EAGAIN;
    proc->destructors[proc->keys] = destructor;
    *key = proc->keys++;
    return 0;
}

void *sim_getspecific(unsigned key)
{
    return sim_current->specific[key];
}

int sim_setspecific(unsigned key, const void *value)
{
    sim_current->specific[key] = (void *)(uintptr_t)value;
    return 0;
}

void sim_proc_thread_ends(struct sim_thread *thread)
{
    for (int round = 0; round < 4; round++)
        for (unsigned key = 0; key < thread->proc->keys; key++) {
            void *value = thread->specific[key];
            thread->specific[key] = NULL;
            if (value && thread->proc->destructors[key])
                thread->proc->destructors[key](value);
        }
}

/* ----------------------------------------------------------------- processes */

void sim_proc_load(const char *path)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL); /* from then on the functions of dibs.h can be called */
    struct link_map *loaded;

    if (!handle || dlinfo(handle, RTLD_DI_LINKMAP, &loaded) != 0) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
    dl_iterate_phdr(look_at, loaded);
    library.data_first = malloc(library.data_size);
    memcpy(library.data_first, library.data, library.data_size);
}

struct sim_proc *sim_proc_start(int number)
{
    struct sim_proc *proc = calloc(1, sizeof *proc), **last = &sim_procs;

    *proc = (struct sim_proc){.number = number, .data = malloc(library.data_size)};
    memcpy(proc->data, library.data_first, library.data_size);
    while (*last)
        last = &(*last)->next;
    *last = proc;
    return proc;
}

void sim_proc_kill(struct sim_proc *proc)
{
    struct sim_proc **at = &sim_procs;

    for (struct sim_thread *thread = proc->threads; thread; thread = thread->next)
        sim_end_thread(thread);
    sim_net_close_all(proc);
    while (*at != proc)
        at = &(*at)->next;
    *at = proc->next;
}

int64_t sim_proc_clock(const struct sim_proc *proc)
{
    return sim_now + (1000 + proc->number) * SIM_S; /* clocks of different hosts */
}
