# Builds the Debian packages of the sources (see dist.sh) for the system that it runs on, in FOLDER.
#
#   sh src/package/deb.sh VERSION FOLDER
#
# Needs dpkg-dev, debhelper, and what src/package/debian/control.in has as Build-Depends. DEBFULLNAME and DEBEMAIL: who is
# named as the maintainer.
set -eu

version=$1
folder=$2
package=$(cd "$(dirname "$0")" && pwd -P)
source=$folder/dibs-$version
maintainer="${DEBFULLNAME:-dibs authors} <${DEBEMAIL:-dibs@example.org}>"

for command in dpkg-buildpackage dh; do
    command -v "$command" >/dev/null || { echo "deb: $command is missing; Debian has it in dpkg-dev and debhelper" >&2 && exit 1; }
done
rm -rf "$folder"
sh "$package/dist.sh" "$version" "$folder"
tar -C "$folder" -xzf "$folder/dibs-$version.tar.gz"

cp -R "$source/src/package/debian" "$source/debian"
sed "s|@MAINTAINER@|$maintainer|" "$source/debian/control.in" >"$source/debian/control"
rm "$source/debian/control.in"
date=$(LC_ALL=C date -u -R -d "@${SOURCE_DATE_EPOCH:-$(stat -c %Y "$source/include/dibs.h")}")
cat >"$source/debian/changelog" <<END
dibs ($version-1) unstable; urgency=medium

  * Version $version. CHANGELOG.md tells what is new.

 -- $maintainer  $date
END

cd "$source"
exec env -u MAKEFLAGS -u MFLAGS dpkg-buildpackage -us -uc -b -j"$(nproc)"
