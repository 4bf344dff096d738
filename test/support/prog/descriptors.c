/* Prints how many descriptors it has beyond the standard three: what an exec after fork inherits. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    DIR *folder = opendir("/proc/self/fd");
    struct dirent *entry;
    int count = -1; /* without the descriptor of the folder itself */

    if (!folder)
        return 2;
    while ((entry = readdir(folder)))
        if (entry->d_name[0] != '.' && atoi(entry->d_name) > 2)
            count++;
    closedir(folder);
    printf("%d\n", count);
    return 0;
}
