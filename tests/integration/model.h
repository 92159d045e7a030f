/* SPDX-License-Identifier: MIT */
/*
 * model: an independent fold of the log, one operation after the other, to hold foldd's documents
 * against. It shares no code and no SQL with foldd.
 *
 * Numbers go through jansson: use it for integers and text only.
 */
#ifndef FOLDD_TEST_MODEL_H
#define FOLDD_TEST_MODEL_H

#include "harness.h"

struct model_op {
    int64_t seq;
    const char *collection;
    const char *document;
    const char *action;      /* create, update, delete */
    const json_t *fields;    /* NULL for delete */
    const char *received_at; /* any text */
};

struct model;

struct model *model_new(void);
void model_free(struct model *model);

/* Fold one operation; seq rises. Returns its outcome: "folded" or "ignored". */
const char *model_fold(struct model *model, const struct model_op *op);

/* Borrowed: {"version","revision","deleted","fields","created_at","updated_at"}; NULL if the
 * document has no operations. */
const json_t *model_document(const struct model *model, const char *collection,
                             const char *document);

/* Fold foldd.operations with the model and fail the test unless foldd.documents and
 * foldd.outcomes are exactly that. Everything in the log must have been folded by foldd. */
void expect_model(struct env *env);

#endif
