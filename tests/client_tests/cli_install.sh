#!/bin/sh
# Installs into a folder other than the configured prefix, builds the examples against that by
# find_package and by pkg-config, and asks the installed tunectl what it finds beside itself.
# Without a daemon the examples must find the installed kernels.
set -eu
cmake=$1 build=$2 source=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
prefix=$folder/prefix
examples=$prefix/share/doc/tunerd/examples # where libtune(3) says they are

"$cmake" --install "$build" --prefix "$prefix" > /dev/null
mkdir "$folder/consumer"
cat > "$folder/consumer/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.16)
project(consumer C)
find_package(tunerd 0.1 REQUIRED)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY bin) # beside nothing
foreach(form tune tune_static)
  foreach(example get tune_get)
    add_executable(\${example}_\${form} $examples/\${example}.c)
    target_link_libraries(\${example}_\${form} tunerd::\${form})
  endforeach()
endforeach()
END
"$cmake" -S "$folder/consumer" -B "$folder/consumer/build" -DCMAKE_PREFIX_PATH="$prefix" > /dev/null
"$cmake" --build "$folder/consumer/build" > "$folder/log" || { cat "$folder/log" && exit 1; }
programs="$folder/consumer/build/bin/get_tune $folder/consumer/build/bin/get_tune_static"
if command -v pkg-config > /dev/null; then
    PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name tunerd.pc)")
    export PKG_CONFIG_PATH
    # shellcheck disable=SC2046 # options
    cc "$examples/get.c" -o "$folder/get" $(pkg-config --cflags --libs tunerd) \
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

# The library finds the kernels that were installed with it, wherever that is; a program that carries
# it in itself has to be told, unless they are at the configured prefix.
default_of() {
    HOME=$folder TUNE_SOCKET=$folder/none.sock "$@" gemm M=64 N=64 K=64 > "$folder/log" 2>&1 &&
        grep -q "default of the installed manifest" "$folder/log" || {
        echo "$* says:" && cat "$folder/log" && exit 1
    }
}
default_of "$folder/consumer/build/bin/tune_get_tune"
default_of env TUNE_PLUGIN_PATH="$prefix/share/tunerd/plugins" \
    "$folder/consumer/build/bin/tune_get_tune_static"

# What it shows to the linker is its own interface and nothing else.
if nm -D --defined-only "$(find "$prefix" -name 'libtune.so')" | grep -v ' tune_'; then
    echo "libtune.so shows these, too" && exit 1
fi

# tune_cuda.h is complete as installed, in C and in C++.
for compiler in "cc -std=c11 -x c" "c++ -std=c++11 -x c++"; do
    echo '#include <tunerd/tune_cuda.h>' | $compiler -Wall -Wextra -Werror -fsyntax-only \
        -I "$prefix/include" -isystem "$source/tests/cuda_stub" -
done

# The parts of a report's page and the shipped records are there.
"$prefix/bin/tunectl" report --records "$prefix/share/tunerd/records/sm_90-nvidia-h200.jsonl" \
    -o "$folder/page.html" > "$folder/log"
grep -q "</html>" "$folder/page.html"

TUNE_EMULATE=1 "$prefix/bin/tunectl" doctor > "$folder/log" || :
for file in libexec/tunerd/tune-worker tunerd/emulator/libnvrtc bin/tunerd; do
    grep -q "$prefix.*$file" "$folder/log" || {
        echo "doctor did not find $file:" && cat "$folder/log" && exit 1
    }
done
