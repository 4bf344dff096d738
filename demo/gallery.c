/* Makes the page of the gallery of the results of dibs-race: gallery RESULTS OUT.html [SOURCES]. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "race/page.h"

int main(int argc, char **argv)
{
    struct page *page;
    FILE *in, *out;
    int status = 0;

    if (argc != 3 && argc != 4) {
        fprintf(stderr,
                "usage: gallery RESULTS OUT.html [SOURCES]\n\n"
                "RESULTS is what dibs-race --results wrote; SOURCES is the folder in which demo/ways is (.).\n");
        return 2;
    }
    in = fopen(argv[1], "r");
    if (!in) {
        fprintf(stderr, "%s: %s\n", argv[1], strerror(errno));
        return 2;
    }
    page = page_read(in);
    fclose(in);
    if (!page)
        return 2;
    out = fopen(argv[2], "w");
    if (out)
        page_write(out, page, argc == 4 ? argv[3] : ".");
    if (!out || fclose(out) != 0) {
        fprintf(stderr, "%s: %s\n", argv[2], strerror(errno));
        status = 2;
    }
    page_free(page);
    return status;
}
