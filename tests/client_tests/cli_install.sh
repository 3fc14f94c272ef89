#!/bin/sh
# Installs into a folder other than the configured prefix, builds the example against that by
# find_package and by pkg-config, and asks the installed tunectl what it finds beside itself.
set -eu
cmake=$1 build=$2 source=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
prefix=$folder/prefix

"$cmake" --install "$build" --prefix "$prefix" > /dev/null
mkdir "$folder/consumer"
cat > "$folder/consumer/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.16)
project(consumer C)
find_package(tunerd 0.1 REQUIRED)
foreach(form tune tune_static)
  add_executable(get_\${form} $source/client/examples/get.c)
  target_link_libraries(get_\${form} tunerd::\${form})
endforeach()
END
"$cmake" -S "$folder/consumer" -B "$folder/consumer/build" -DCMAKE_PREFIX_PATH="$prefix" > /dev/null
"$cmake" --build "$folder/consumer/build" > "$folder/log" || { cat "$folder/log" && exit 1; }
programs="$folder/consumer/build/get_tune $folder/consumer/build/get_tune_static"
if command -v pkg-config > /dev/null; then
    PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name tunerd.pc)")
    export PKG_CONFIG_PATH
    # shellcheck disable=SC2046 # options
    cc "$source/client/examples/get.c" -o "$folder/get" $(pkg-config --cflags --libs tunerd) \
        -Wl,-rpath,"$(pkg-config --variable=libdir tunerd)"
    programs="$programs $folder/get"
fi
for program in $programs; do
    status=0
    TUNE_SOCKET=$folder/none.sock "$program" 1 2 3 2> "$folder/log" || status=$?
    if [ "$status" -ne 3 ] || ! grep -q "$folder/none.sock" "$folder/log"; then
        echo "$program ended with $status:" && cat "$folder/log" && exit 1
    fi
done

TUNE_EMULATE=1 "$prefix/bin/tunectl" doctor > "$folder/log" || :
for file in libexec/tunerd/tune-worker tunerd/emulator/libnvrtc bin/tunerd; do
    grep -q "$prefix.*$file" "$folder/log" || {
        echo "doctor did not find $file:" && cat "$folder/log" && exit 1
    }
done
