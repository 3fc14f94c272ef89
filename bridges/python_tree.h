/* The tree of a Python expression, shared by the parser (python_parse.c), the evaluator
 * (python_eval.c) and the translation into a manifest's expressions (python_expr.c). */
#ifndef TUNE_BRIDGES_PYTHON_TREE_H
#define TUNE_BRIDGES_PYTHON_TREE_H

#include "python.h"

enum node_kind {
    NODE_VALUE, /* value */
    NODE_NAME,  /* value.text */
    NODE_LIST,  /* kids: the elements */
    NODE_UNARY, /* op: - + !; kids[0] */
    NODE_BINARY,
    NODE_COMPARE, /* kids[0] ops[0] kids[1] ops[1] kids[2] ...: op of each right operand is in it */
    NODE_AND,     /* kids */
    NODE_OR,      /* kids */
    NODE_CHOICE,  /* kids: condition, then, else */
    NODE_CALL,    /* value.text is the function; kids: arguments */
    NODE_SUBSCRIPT, /* kids: list, index */
    NODE_GENERATE,  /* kids: element, then clauses */
    NODE_FOR,       /* value.text is the name; kids[0]: the list */
    NODE_IF,        /* kids[0] */
};

enum python_op {
    OP_NONE,
    OP_ADD,
    OP_SUBTRACT,
    OP_MULTIPLY,
    OP_DIVIDE, /* / */
    OP_FLOOR,  /* // */
    OP_MODULO,
    OP_POWER,
    OP_NEGATE,
    OP_PLUS,
    OP_NOT,
    OP_EQUAL,
    OP_NOT_EQUAL,
    OP_LESS,
    OP_LESS_EQUAL,
    OP_GREATER,
    OP_GREATER_EQUAL,
    OP_IN,
    OP_NOT_IN,
};

#define NODE_DEPTH_LIMIT 256

struct node {
    enum node_kind kind;
    enum python_op op;
    enum python_op
        compared;   /* as an operand of NODE_COMPARE: how it is compared with the one before */
    unsigned depth; /* of the tree below; whoever walks it may recurse */
    struct python_value value;
    size_t kid_count;
    struct node **kids;
};

/* Memory that lives as long as its owner: blocks that only grow, all released at once. */
struct arena {
    struct arena_block *blocks;
    size_t used_bytes; /* handed out since the last reset */
};

#define ARENA_LIMIT_BYTES ((size_t)64 << 20)

/* Zeroed. NULL without memory or past the limit (*err is set). */
void *arena_take(struct arena *arena, size_t bytes, struct tune_error *err);
void arena_finish(struct arena *arena);

struct python {
    struct node *root;
    struct arena tree;   /* of the parser */
    struct arena values; /* of the last evaluation */
    size_t steps;        /* of all evaluations */
};

bool python_has_function(const char *name);

/* The same as python_eval for a part of the tree. */
int python_eval_node(struct python *python, const struct node *node,
    const struct python_name *names, size_t count, struct python_value *value,
    struct tune_error *err);

#endif
