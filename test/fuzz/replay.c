/* Gives each file of the folders named (or each file named) to a target, in place of libFuzzer. */
#include <dirent.h>
#include <string.h>

#include "fuzz/fuzz.h"

enum { PATH_SIZE = 4096 };

/* The bytes in memory of just their size, so that a read past them is seen. */
static void replay_file(const char *path, FILE *file)
{
    static uint8_t bytes[1 << 20];
    size_t size = fread(bytes, 1, sizeof bytes, file);
    uint8_t *copy = malloc(size > 0 ? size : 1);

    promise(copy && !ferror(file));
    memcpy(copy, bytes, size);
    printf("%s\n", path);
    fflush(stdout);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static unsigned replay_folder(const char *path, DIR *folder)
{
    char file_path[PATH_SIZE];
    unsigned count = 0;

    for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(file_path, sizeof file_path, "%s/%s", path, entry->d_name);
        FILE *file = fopen(file_path, "rb");
        promise(file);
        replay_file(file_path, file);
        fclose(file);
        count++;
    }
    return count;
}

static unsigned replay(const char *path)
{
    DIR *folder = opendir(path);
    FILE *file = folder ? NULL : fopen(path, "rb");
    unsigned count = 1;

    promise(folder || file);
    if (folder) {
        count = replay_folder(path, folder);
        closedir(folder);
    } else {
        replay_file(path, file);
        fclose(file);
    }
    return count;
}

int main(int argc, char **argv)
{
    unsigned count = 0;

    for (int i = 1; i < argc; i++)
        count += replay(argv[i]);
    printf("%u inputs\n", count);
    return count > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
