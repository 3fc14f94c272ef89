/* A small text file, whole. */
#ifndef TUNE_FILE_H
#define TUNE_FILE_H

/* malloc'ed text, up to a zero byte if there is one; NULL for a file that cannot be read (errno
 * says why) or is empty. */
char *file_read_text(const char *path);

#endif
