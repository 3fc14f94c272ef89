#include "loader.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

size_t loader_image_bytes(const void *bytes)
{
    ElfW(Ehdr) header;
    memcpy(&header, bytes, SELFMAG);
    if (memcmp(&header, ELFMAG, SELFMAG) != 0)
        return 0;
    memcpy(&header, bytes, sizeof header);
    if (header.e_type != ET_DYN || header.e_shoff == 0)
        return 0;
    return header.e_shoff + (size_t)header.e_shnum * header.e_shentsize;
}

/* --- symbols ---------------------------------------------------------------------------------- */

struct symbols {
    const ElfW(Sym) * table;
    size_t count;
    const char *names;
    const ElfW(Shdr) * sections;
    size_t section_count;
};

/* The full symbol table (not the dynamic one, which lacks local statics). */
static bool find_symbols(const char *bytes, size_t count, struct symbols *symbols)
{
    const ElfW(Ehdr) *header = (const void *)bytes;
    if (header->e_shentsize != sizeof(ElfW(Shdr)) || loader_image_bytes(bytes) > count)
        return false;
    symbols->sections = (const void *)(bytes + header->e_shoff);
    symbols->section_count = header->e_shnum;
    for (size_t i = 0; i < header->e_shnum; i++) {
        const ElfW(Shdr) *section = &symbols->sections[i];
        if (section->sh_type != SHT_SYMTAB || section->sh_link >= header->e_shnum ||
            section->sh_offset > count || section->sh_size > count - section->sh_offset)
            continue;
        symbols->table = (const void *)(bytes + section->sh_offset);
        symbols->count = section->sh_size / sizeof *symbols->table;
        symbols->names = bytes + symbols->sections[section->sh_link].sh_offset;
        return true;
    }
    return false;
}

static bool is_own_name(const char *name)
{
    static const char *const own[] = {"threadIdx", "blockIdx", "blockDim", "gridDim", "hot"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(name, own[i]) == 0)
            return true;
    return strncmp(name, "tune_", 5) == 0 || strncmp(name, "_ZN11tune_caller", 16) == 0;
}

static int by_address(const void *left, const void *right)
{
    const struct loaded_object *a = left, *b = right;
    return a->address < b->address ? -1 : a->address > b->address;
}

/* Variables of the kernel's source. Statics of functions (_ZZ...) are shared memory: device code
 * has no others that can be written. */
static bool collect_objects(struct loaded *loaded, const struct symbols *symbols)
{
    size_t names_bytes = 1;
    for (size_t i = 0; i < symbols->count; i++)
        names_bytes += strlen(symbols->names + symbols->table[i].st_name) + 1;
    loaded->objects = calloc(symbols->count + 1, sizeof *loaded->objects);
    loaded->names = malloc(names_bytes);
    if (!loaded->objects || !loaded->names)
        return false;
    char *name_at = loaded->names;
    for (size_t i = 0; i < symbols->count; i++) {
        const ElfW(Sym) *symbol = &symbols->table[i];
        const char *name = symbols->names + symbol->st_name;
        if (ELF64_ST_TYPE(symbol->st_info) != STT_OBJECT || symbol->st_size == 0 ||
            symbol->st_shndx == SHN_UNDEF || symbol->st_shndx >= symbols->section_count ||
            is_own_name(name))
            continue;
        bool writable = symbols->sections[symbol->st_shndx].sh_flags & SHF_WRITE;
        loaded->objects[loaded->object_count++] = (struct loaded_object){.name = name_at,
            .address = loaded->base + symbol->st_value,
            .bytes = symbol->st_size,
            .is_shared = writable && strncmp(name, "_ZZ", 3) == 0,
            .is_read_only = !writable};
        name_at = stpcpy(name_at, name) + 1;
    }
    qsort(loaded->objects, loaded->object_count, sizeof *loaded->objects, by_address);
    return true;
}

/* --- kernels ---------------------------------------------------------------------------------- */

static const ElfW(Sym) * function_symbol(const struct symbols *symbols, uintptr_t value)
{
    for (size_t i = 0; i < symbols->count; i++)
        if (ELF64_ST_TYPE(symbols->table[i].st_info) == STT_FUNC &&
            symbols->table[i].st_value == value && symbols->table[i].st_size)
            return &symbols->table[i];
    return NULL;
}

/* How the name of a static variable of that function begins: _ZZ4gemmE or _ZZ2ktILi3EEvPfE. */
static void statics_prefix(const char *function, char *prefix, size_t room)
{
    if (strncmp(function, "_Z", 2) == 0)
        snprintf(prefix, room, "_ZZ%sE", function + 2);
    else
        snprintf(prefix, room, "_ZZ%zu%sE", strlen(function), function);
}

static uint32_t launch_bound(const struct image *image, uintptr_t function)
{
    uintptr_t bound = 0;
    for (void *const *entry = image->bounds; entry < image->bounds_end; entry++) {
        uintptr_t nops = (uintptr_t)*entry;
        if (nops < function && function - nops <= 65535 && (!bound || function - nops < bound))
            bound = function - nops;
    }
#ifdef __aarch64__
    bound /= 4;
#endif
    return (uint32_t)bound;
}

/* As a compiler would: more for longer code, and never so many that a block of the bound cannot
 * run. */
static uint32_t made_up_registers(uint64_t code_bytes, uint32_t bound)
{
    uint64_t registers = 16 + code_bytes / 64 / 8 * 8;
    uint64_t most = bound ? 65536 / ((bound + 31) / 32 * 32) / 8 * 8 : 64;
    if (most > 255)
        most = 255;
    return (uint32_t)(registers < most ? registers : most);
}

static void count_static_shared(
    struct loaded *loaded, const char prefixes[][512], struct loaded_kernel *kernel, size_t index)
{
    for (size_t i = 0; i < loaded->object_count; i++) {
        const struct loaded_object *object = &loaded->objects[i];
        size_t owner = 0;
        if (!object->is_shared)
            continue;
        while (owner < loaded->kernel_count &&
               strncmp(object->name, prefixes[owner], strlen(prefixes[owner])) != 0)
            owner++;
        /* That of a device function may be used by any kernel. */
        if (owner == loaded->kernel_count || owner == index)
            kernel->static_shared += (uint32_t)((object->bytes + 15) / 16 * 16);
    }
}

static bool collect_kernels(struct loaded *loaded, const struct symbols *symbols)
{
    size_t count = 0;
    char name[40];
    while (snprintf(name, sizeof name, "tune_kernel_%zu", count), dlsym(loaded->library, name))
        count++;
    loaded->kernels = calloc(count + 1, sizeof *loaded->kernels);
    char(*prefixes)[512] = calloc(count + 1, sizeof *prefixes);
    if (!loaded->kernels || !prefixes) {
        free(prefixes);
        return false;
    }
    loaded->kernel_count = count;
    for (size_t i = 0; i < count; i++) {
        struct loaded_kernel *kernel = &loaded->kernels[i];
        snprintf(name, sizeof name, "tune_kernel_%zu", i);
        kernel->image = dlsym(loaded->library, name);
        uintptr_t address = (uintptr_t)kernel->image->function;
        const ElfW(Sym) *symbol = function_symbol(symbols, address - loaded->base);
        kernel->launch_bound = launch_bound(loaded->image, address);
        kernel->registers = made_up_registers(symbol ? symbol->st_size : 0, kernel->launch_bound);
        if (symbol)
            statics_prefix(symbols->names + symbol->st_name, prefixes[i], sizeof prefixes[i]);
    }
    for (size_t i = 0; i < count; i++)
        count_static_shared(loaded, prefixes, &loaded->kernels[i], i);
    free(prefixes);
    return true;
}

/* --- open and close --------------------------------------------------------------------------- */

static int memory_file(const void *bytes, size_t count)
{
    int descriptor = memfd_create("kernel image", MFD_CLOEXEC);
    for (size_t done = 0; descriptor >= 0 && done < count;) {
        ssize_t n = write(descriptor, (const char *)bytes + done, count - done);
        if (n <= 0) {
            close(descriptor);
            return -1;
        }
        done += (size_t)n;
    }
    return descriptor;
}

static bool find_image(struct loaded *loaded)
{
    struct link_map *map;
    loaded->image = dlsym(loaded->library, "tune_image");
    if (!loaded->image || loaded->image->version != TUNE_IMAGE_VERSION ||
        dlinfo(loaded->library, RTLD_DI_LINKMAP, &map) != 0)
        return false;
    loaded->base = map->l_addr;
    return true;
}

struct loaded *loader_open(const void *bytes, size_t count, char *text, size_t room)
{
    struct symbols symbols;
    char path[64];
    struct loaded *loaded = calloc(1, sizeof *loaded);
    if (!loaded)
        return NULL;
    loaded->descriptor = memory_file(bytes, count);
    snprintf(path, sizeof path, "/proc/self/fd/%d", loaded->descriptor);
    loaded->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!loaded->library) {
        snprintf(text, room, "%s", dlerror());
    } else if (!find_image(loaded) || !find_symbols(bytes, count, &symbols)) {
        snprintf(text, room, "not an image of this emulator's compiler");
    } else if (!collect_objects(loaded, &symbols) || !collect_kernels(loaded, &symbols)) {
        snprintf(text, room, "no memory");
    } else {
        return loaded;
    }
    loader_close(loaded);
    return NULL;
}

void loader_close(struct loaded *loaded)
{
    if (!loaded)
        return;
    if (loaded->library)
        dlclose(loaded->library);
    if (loaded->descriptor >= 0)
        close(loaded->descriptor);
    free(loaded->kernels);
    free(loaded->objects);
    free(loaded->names);
    free(loaded);
}

/* --- look up ---------------------------------------------------------------------------------- */

const struct loaded_kernel *loader_kernel(const struct loaded *loaded, const char *name)
{
    for (size_t i = 0; i < loaded->kernel_count; i++)
        if (strcmp(loaded->kernels[i].image->name, name) == 0)
            return &loaded->kernels[i];
    return NULL;
}

const struct loaded_object *loader_object(const struct loaded *loaded, uintptr_t address)
{
    size_t low = 0, high = loaded->object_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (loaded->objects[middle].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    const struct loaded_object *object = low ? &loaded->objects[low - 1] : NULL;
    return object && address - object->address < object->bytes ? object : NULL;
}

static size_t read_output(char *const *arguments, char *text, size_t room)
{
    int ends[2];
    pid_t pid;
    size_t used = 0;
    ssize_t n;
    posix_spawn_file_actions_t actions;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return 0;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", 1, 0);
    int failed = posix_spawnp(&pid, arguments[0], &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    while (!failed && used + 1 < room && (n = read(ends[0], text + used, room - 1 - used)) > 0)
        used += (size_t)n;
    close(ends[0]);
    if (!failed)
        waitpid(pid, NULL, 0);
    return used;
}

void loader_line(const struct loaded *loaded, const void *pc, char *text, size_t room)
{
    char program[] = "addr2line", option[] = "-e", file[64], address[32], output[1024];
    snprintf(file, sizeof file, "/proc/%d/fd/%d", (int)getpid(), loaded->descriptor);
    snprintf(address, sizeof address, "0x%lx", (unsigned long)((uintptr_t)pc - loaded->base - 1));
    char *arguments[] = {program, option, file, address, NULL};
    size_t used = read_output(arguments, output, sizeof output);
    output[used] = '\0';
    output[strcspn(output, "\n ")] = '\0';
    const char *name = strncmp(output, "./", 2) == 0 ? output + 2 : output;
    snprintf(text, room, "%s", *name && *name != '?' ? name : "?");
}
