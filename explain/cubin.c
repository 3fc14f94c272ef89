/* See cubin.h. */
#include "explain/cubin.h"

#include <elf.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MACHINE_CUDA 190
/* EI_OSABI of CUDA 13 and later, where the architecture is in bits 8..15 of the flags; before, it
 * was in bits 0..7. */
#define OSABI_CUDA_13 0x41
#define OLDEST_SM 70
/* PTX begins with comments; the version is its first word. */
#define PTX_HEAD_BYTES 4096

static bool is_ptx(const void *bytes, size_t count)
{
    size_t head = count < PTX_HEAD_BYTES ? count : PTX_HEAD_BYTES;
    return memmem(bytes, head, ".version", strlen(".version")) != NULL;
}

static int not_elf(const void *bytes, size_t count, struct tune_error *err)
{
    if (is_ptx(bytes, count))
        return tune_fail(err, TUNE_ENOTFOUND,
            "this is PTX, which has no instructions of a GPU yet; compile for sm_XX in place of "
            "compute_XX");
    return tune_fail(err, TUNE_EINVAL, "not a cubin: it does not begin with an ELF header");
}

static int read_header(
    struct cubin *cubin, size_t count, Elf64_Ehdr *header, struct tune_error *err)
{
    if (count < sizeof *header || memcmp(cubin->bytes, ELFMAG, SELFMAG) != 0)
        return not_elf(cubin->bytes, count, err);
    memcpy(header, cubin->bytes, sizeof *header);
    if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB ||
        header->e_machine != MACHINE_CUDA)
        return tune_fail(err, TUNE_EINVAL, "not a cubin: an ELF file of another machine");
    bool is_new = header->e_ident[EI_OSABI] == OSABI_CUDA_13;
    cubin->sm = (int)((is_new ? header->e_flags >> 8 : header->e_flags) & 0xFF);
    if (cubin->sm < OLDEST_SM)
        return tune_fail(err, TUNE_ENOTFOUND,
            "code for sm_%d: instructions are read from sm_%d on; compile for a later GPU",
            cubin->sm, OLDEST_SM);
    if (header->e_shentsize != sizeof(Elf64_Shdr) || header->e_shoff > count ||
        header->e_shnum > (count - header->e_shoff) / sizeof(Elf64_Shdr))
        return tune_fail(err, TUNE_EINVAL, "damaged cubin: its table of sections is cut short");
    if (header->e_shstrndx >= header->e_shnum)
        return tune_fail(err, TUNE_EINVAL, "damaged cubin: no section holds the names");
    return 0;
}

static bool has_bytes(const Elf64_Shdr *header)
{
    return header->sh_type != SHT_NULL && header->sh_type != SHT_NOBITS;
}

static Elf64_Shdr section_header(const struct cubin *cubin, const Elf64_Ehdr *file, size_t index)
{
    Elf64_Shdr header;
    memcpy(&header, cubin->bytes + file->e_shoff + index * sizeof header, sizeof header);
    return header;
}

static int read_section(struct cubin *cubin, size_t count, const Elf64_Shdr *header, size_t index,
    struct tune_error *err)
{
    cubin->sections[index] = (struct cubin_section){
        .type = header->sh_type, .link = header->sh_link, .info = header->sh_info};
    if (!has_bytes(header))
        return 0;
    if (header->sh_offset > count || header->sh_size > count - header->sh_offset)
        return tune_fail(err, TUNE_EINVAL, "damaged cubin: section %zu lies beyond its end", index);
    cubin->sections[index].bytes = cubin->bytes + header->sh_offset;
    cubin->sections[index].count = header->sh_size;
    return 0;
}

/* A name that does not end where the names do ends with the file. */
static int read_sections(
    struct cubin *cubin, size_t count, const Elf64_Ehdr *file, struct tune_error *err)
{
    cubin->sections = calloc(file->e_shnum, sizeof *cubin->sections);
    if (cubin->sections == NULL)
        return tune_fail(err, TUNE_ENOMEM, "no memory for the sections of a cubin");
    cubin->section_count = file->e_shnum;
    for (size_t i = 0; i < cubin->section_count; i++) {
        Elf64_Shdr header = section_header(cubin, file, i);
        if (read_section(cubin, count, &header, i, err))
            return -1;
    }
    const struct cubin_section *names = &cubin->sections[file->e_shstrndx];
    for (size_t i = 0; i < cubin->section_count; i++) {
        Elf64_Shdr header = section_header(cubin, file, i);
        if (header.sh_name >= names->count)
            return tune_fail(err, TUNE_EINVAL, "damaged cubin: section %zu has no name", i);
        cubin->sections[i].name = (const char *)names->bytes + header.sh_name;
    }
    return 0;
}

int cubin_init(struct cubin *cubin, const void *bytes, size_t count, struct tune_error *err)
{
    Elf64_Ehdr header;
    *cubin = (struct cubin){0};
    if (count > CUBIN_BYTES_MAX)
        return tune_fail(
            err, TUNE_ELIMIT, "a cubin of %zu bytes; at most %zu are read", count, CUBIN_BYTES_MAX);
    cubin->bytes = malloc(count + 1);
    if (cubin->bytes == NULL)
        return tune_fail(err, TUNE_ENOMEM, "no memory for a cubin of %zu bytes", count);
    if (count > 0)
        memcpy(cubin->bytes, bytes, count);
    cubin->bytes[count] = '\0';
    if (read_header(cubin, count, &header, err))
        return -1;
    return read_sections(cubin, count, &header, err);
}

void cubin_finish(struct cubin *cubin)
{
    free(cubin->bytes);
    free(cubin->sections);
    *cubin = (struct cubin){0};
}
