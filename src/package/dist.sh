# Writes FOLDER/dibs-VERSION.tar.gz with the sources: the last commit where the sources are a git repository, else what is
# there. The same sources and times give the same bytes.
#
#   sh src/package/dist.sh VERSION FOLDER
#
# Without git it needs GNU tar, and all files get the time SOURCE_DATE_EPOCH (seconds), else that of the newest of them.
set -eu

version=$1
folder=$2
name=dibs-$version
top=$(cd "$(dirname "$0")/../.." && pwd -P)
archive=$folder/$name.tar.gz

is_repository() {
    [ "$(git -C "$top" rev-parse --show-toplevel 2>/dev/null)" = "$top" ]
}

of_the_commit() {
    git -C "$top" diff --quiet HEAD || echo "dist: what is not committed is left out" >&2
    git -C "$top" -c tar.umask=0022 archive --format=tar --prefix="$name/" HEAD
}

# One name a line, in the same order everywhere.
files() {
    (cd "$top" && find . \( -path ./.git -o -path ./build -o -path ./lib -o -path ./bench/out -o -path ./demo/gallery.html \
        -o -name __pycache__ \) -prune -o -type f -print) | LC_ALL=C sort
}

newest() {
    (cd "$top" && files | xargs -d '\n' stat -c %Y) | sort -n | tail -n 1
}

of_the_tree() {
    files | tar -C "$top" --format=ustar --owner=0 --group=0 --numeric-owner --mode=u+rw,go+r,go-w \
        --mtime="@${SOURCE_DATE_EPOCH:-$(newest)}" --transform="s,^\./,$name/," --no-recursion -T - -cf -
}

mkdir -p "$folder"
if is_repository; then of_the_commit; else of_the_tree; fi >"$folder/$name.tar"
gzip -9 -n -f "$folder/$name.tar"
echo "$archive"
