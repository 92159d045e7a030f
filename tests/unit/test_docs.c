/* SPDX-License-Identifier: MIT */
/*
 * Two kinds of test: a player of events whose decisions are compared as a text trace, and a random
 * schedule against a naive model. In the trace a task is written D1[1,2]; "+n" behind it counts the
 * operations that wait behind the task.
 */
#include "docs.h"

#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "unit.h"

struct play {
    struct docs *docs;
    struct doc_list running;
    struct buf trace;
    int64_t now_ms;
};

static struct span key_of(const char *name)
{
    return (struct span){name, strlen(name)};
}

static void begin(struct play *play, size_t max_docs, size_t max_ops, size_t chunk_ops)
{
    const struct docs_limits limits = {max_docs, max_ops, chunk_ops};
    *play = (struct play){.docs = docs_new(&limits)};
    TAILQ_INIT(&play->running);
}

static void end(struct play *play)
{
    docs_free(play->docs);
    buf_fini(&play->trace);
}

static void expect(struct play *play, const char *trace)
{
    ck_assert_str_eq(buf_cstr(&play->trace), trace);
    play->trace.len = 0;
}

static void expect_counts(const struct play *play, const char *counts)
{
    struct docs_counts c = docs_counts(play->docs);
    struct buf text = {0};
    buf_printf(&text, "queued %zu running %zu requeue %zu aside %zu parked %zu tasks %llu",
               c.queued, c.running, c.requeue, c.aside, c.parked, (unsigned long long)c.tasks);
    ck_assert_str_eq(buf_cstr(&text), counts);
    buf_fini(&text);
}

static struct doc *find(const struct play *play, const char *name)
{
    struct doc *doc = docs_find(play->docs, key_of(name));
    ck_assert_msg(doc != NULL, "%s has no entry", name);
    return doc;
}

static struct doc *unlink_doc(struct play *play, const char *name)
{
    struct doc *doc = find(play, name);
    ck_assert(doc->state == DOC_RUNNING);
    TAILQ_REMOVE(&play->running, doc, link);
    return doc;
}

static void add(struct play *play, const char *name, int64_t seq)
{
    if (!docs_add(play->docs, key_of(name), seq))
        buf_printf(&play->trace, "%s is parked\n", name);
}

/* One statement: D1[1,2] D2[3]+1. */
static void take(struct play *play)
{
    struct doc_list taken = TAILQ_HEAD_INITIALIZER(taken);
    size_t count = docs_take(play->docs, &taken, play->now_ms);
    struct doc *doc;
    buf_add_str(&play->trace, count == 0 ? "nothing" : "");
    for (size_t n = 0; (doc = TAILQ_FIRST(&taken)) != NULL; n++) {
        buf_printf(&play->trace, "%s%.*s[", n > 0 ? " " : "", (int)doc->key_len, doc->key);
        for (size_t i = 0; i < doc->chunk; i++)
            buf_printf(&play->trace, "%s%lld", i > 0 ? "," : "", (long long)doc_chunk(doc)[i]);
        buf_add_str(&play->trace, "]");
        if (doc->count > doc->task)
            buf_printf(&play->trace, "+%zu", doc->count - doc->task);
        TAILQ_REMOVE(&taken, doc, link);
        TAILQ_INSERT_TAIL(&play->running, doc, link);
        count--;
    }
    ck_assert_uint_eq(count, 0);
    buf_add_char(&play->trace, '\n');
}

static void done_count(struct play *play, const char *name, size_t count)
{
    docs_done(play->docs, unlink_doc(play, name), count);
}

static void done(struct play *play, const char *name)
{
    done_count(play, name, find(play, name)->chunk);
}

/* Everything that is left, one statement after the other. */
static void run_dry(struct play *play)
{
    while (docs_counts(play->docs).queued > 0) {
        take(play);
        struct doc *doc;
        while ((doc = TAILQ_FIRST(&play->running)) != NULL) {
            TAILQ_REMOVE(&play->running, doc, link);
            docs_done(play->docs, doc, doc->chunk);
        }
    }
}

/* The requeue flag */

START_TEST(an_idle_document_has_no_entry)
{
    struct play play;
    begin(&play, 10, 100, 10);
    take(&play);
    ck_assert_ptr_null(docs_find(play.docs, key_of("D1")));
    add(&play, "D1", 1);
    expect_counts(&play, "queued 1 running 0 requeue 0 aside 0 parked 0 tasks 0");
    take(&play);
    expect_counts(&play, "queued 0 running 1 requeue 0 aside 0 parked 0 tasks 1");
    done(&play, "D1");
    ck_assert_ptr_null(docs_find(play.docs, key_of("D1")));
    expect_counts(&play, "queued 0 running 0 requeue 0 aside 0 parked 0 tasks 1");
    expect(&play, "nothing\nD1[1]\n");
    end(&play);
    docs_free(NULL);
}
END_TEST

/* Scenario 1. */
START_TEST(an_update_during_a_run_gives_one_more)
{
    struct play play;
    begin(&play, 10, 100, 10);
    add(&play, "D1", 1);
    take(&play);
    add(&play, "D1", 2);
    expect_counts(&play, "queued 0 running 1 requeue 1 aside 0 parked 0 tasks 1");
    take(&play);
    done(&play, "D1");
    run_dry(&play);
    expect(&play, "D1[1]\nnothing\nD1[2]\n");
    expect_counts(&play, "queued 0 running 0 requeue 0 aside 0 parked 0 tasks 2");
    end(&play);
}
END_TEST

/* Scenario 2: C1[D1] U2[D1] C1[D2] U3[D1] U2[D2] while the tasks of both documents run. */
START_TEST(five_operations_during_two_runs_give_two_more)
{
    struct play play;
    begin(&play, 1, 100, 10);
    add(&play, "D1", 1);
    add(&play, "D2", 2);
    take(&play);
    take(&play);
    add(&play, "D1", 11);
    add(&play, "D1", 12);
    add(&play, "D2", 13);
    add(&play, "D1", 14);
    add(&play, "D2", 15);
    expect_counts(&play, "queued 0 running 2 requeue 2 aside 0 parked 0 tasks 2");
    done(&play, "D2");
    expect_counts(&play, "queued 1 running 1 requeue 1 aside 0 parked 0 tasks 2");
    done(&play, "D1");
    run_dry(&play);
    expect(&play, "D1[1]\nD2[2]\nD2[13,15]\nD1[11,12,14]\n");
    expect_counts(&play, "queued 0 running 0 requeue 0 aside 0 parked 0 tasks 4");
    end(&play);
}
END_TEST

/* Scenario 3. */
START_TEST(ten_thousand_during_a_run_give_one_more)
{
    enum { COUNT = 10000 };
    struct play play;
    begin(&play, 10, 2 * COUNT, 2 * COUNT);
    add(&play, "D1", 1);
    take(&play);
    for (int64_t seq = 2; seq < 2 + COUNT; seq++)
        add(&play, "D1", seq);
    expect_counts(&play, "queued 0 running 1 requeue 1 aside 0 parked 0 tasks 1");
    done(&play, "D1");
    expect(&play, "D1[1]\n");
    take(&play);
    const struct doc *doc = find(&play, "D1");
    ck_assert_uint_eq(doc->chunk, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        if (doc_chunk(doc)[i] != (int64_t)i + 2)
            ck_abort_msg("%zu", i);
    done(&play, "D1");
    expect_counts(&play, "queued 0 running 0 requeue 0 aside 0 parked 0 tasks 2");
    end(&play);
}
END_TEST

/* Scenario 4. */
START_TEST(an_update_between_commit_and_completion_is_not_lost)
{
    struct play play;
    begin(&play, 10, 100, 10);
    add(&play, "D1", 1);
    for (int64_t seq = 2; seq <= 10001; seq++) {
        take(&play);
        /* The statement has committed without it. */
        add(&play, "D1", seq);
        done(&play, "D1");
        const struct doc *doc = find(&play, "D1");
        if (doc->state != DOC_QUEUED || doc->count != 1 || doc_waiting(doc)[0] != seq)
            ck_abort_msg("%lld is lost", (long long)seq);
    }
    expect_counts(&play, "queued 1 running 0 requeue 0 aside 0 parked 0 tasks 10000");
    end(&play);
}
END_TEST

/* Scenario 7. */
START_TEST(a_requeued_document_goes_behind_queued_ones)
{
    struct play play;
    begin(&play, 1, 100, 10);
    add(&play, "D1", 1);
    take(&play);
    add(&play, "D1", 2);
    add(&play, "D2", 3);
    add(&play, "D3", 4);
    done(&play, "D1");
    add(&play, "D4", 5);
    run_dry(&play);
    expect(&play, "D1[1]\nD2[3]\nD3[4]\nD1[2]\nD4[5]\n");
    end(&play);
}
END_TEST

START_TEST(what_comes_before_the_run_joins_the_task)
{
    struct play play;
    begin(&play, 10, 100, 10);
    add(&play, "D1", 1);
    add(&play, "D2", 2);
    add(&play, "D1", 3);
    add(&play, "D1", 4);
    run_dry(&play);
    expect(&play, "D1[1,3,4] D2[2]\n");
    expect_counts(&play, "queued 0 running 0 requeue 0 aside 0 parked 0 tasks 2");
    end(&play);
}
END_TEST

/* Statements and chunks */

START_TEST(a_statement_is_full_at_its_caps)
{
    struct play play;
    begin(&play, 3, 5, 4);
    static const char *const names[] = {"A", "B", "C", "D", "E", "F", "G"};
    for (int64_t i = 0; i < 7; i++)
        add(&play, names[i], i + 1);
    for (int64_t i = 4; i < 6; i++)
        for (int64_t n = 0; n < 2; n++)
            add(&play, names[i], 10 + 2 * i + n);
    run_dry(&play);
    /* Three documents; five operations; the rest. */
    expect(&play, "A[1] B[2] C[3]\nD[4] E[5,18,19]\nF[6,20,21] G[7]\n");
    expect_counts(&play, "queued 0 running 0 requeue 0 aside 0 parked 0 tasks 7");
    end(&play);
}
END_TEST

START_TEST(chunks_of_a_task_count_once_and_queue_behind_others)
{
    struct play play;
    begin(&play, 1, 100, 3);
    for (int64_t seq = 1; seq <= 7; seq++)
        add(&play, "D1", seq);
    add(&play, "D2", 8);
    take(&play);
    add(&play, "D3", 9);
    /* Behind the task: one more task, in the end. */
    add(&play, "D1", 10);
    expect_counts(&play, "queued 2 running 1 requeue 1 aside 0 parked 0 tasks 1");
    done(&play, "D1");
    expect_counts(&play, "queued 3 running 0 requeue 0 aside 0 parked 0 tasks 1");
    add(&play, "D1", 11);
    run_dry(&play);
    expect(&play, "D1[1,2,3]\nD2[8]\nD3[9]\nD1[4,5,6]+2\nD1[7]+2\nD1[10,11]\n");
    expect_counts(&play, "queued 0 running 0 requeue 0 aside 0 parked 0 tasks 4");
    end(&play);
}
END_TEST

START_TEST(a_huge_document_does_not_starve_the_others)
{
    struct play play;
    begin(&play, 2, 4, 3);
    for (int64_t seq = 1; seq <= 6; seq++)
        add(&play, "D1", seq);
    add(&play, "D2", 7);
    add(&play, "D3", 8);
    add(&play, "D4", 9);
    run_dry(&play);
    expect(&play, "D1[1,2,3] D2[7]\nD3[8] D4[9]\nD1[4,5,6]\n");
    end(&play);
}
END_TEST

START_TEST(what_is_left_of_a_chunk_runs_next)
{
    struct play play;
    begin(&play, 1, 100, 4);
    for (int64_t seq = 1; seq <= 6; seq++)
        add(&play, "D1", seq);
    add(&play, "D2", 7);
    take(&play);
    done_count(&play, "D1", 1);
    take(&play);
    done_count(&play, "D1", 0);
    run_dry(&play);
    expect(&play, "D1[1,2,3,4]\nD1[2,3,4,5]\nD1[2,3,4,5]\nD2[7]\nD1[6]\n");
    expect_counts(&play, "queued 0 running 0 requeue 0 aside 0 parked 0 tasks 2");
    end(&play);
}
END_TEST

/* Splits */

/* Every running document back to the queue, as after a statement that failed. */
static void split_all(struct play *play)
{
    struct doc *doc;
    size_t batch_docs = 0;
    TAILQ_FOREACH(doc, &play->running, link)
        batch_docs++;
    while ((doc = TAILQ_LAST(&play->running, doc_list)) != NULL) {
        TAILQ_REMOVE(&play->running, doc, link);
        docs_split(play->docs, doc, batch_docs);
    }
}

START_TEST(a_failed_statement_is_split_by_documents_then_by_operations)
{
    struct play play;
    begin(&play, 10, 100, 10);
    for (int64_t seq = 1; seq <= 5; seq++)
        add(&play, "D1", seq);
    add(&play, "D2", 6);
    add(&play, "D3", 7);
    add(&play, "D4", 8);
    take(&play);
    split_all(&play);
    add(&play, "D5", 9);
    take(&play);
    split_all(&play);
    /* D1 alone, then 3 of its 5 operations, then 2, then 1. */
    for (int i = 0; i < 4; i++) {
        take(&play);
        split_all(&play);
    }
    expect(&play, "D1[1,2,3,4,5] D2[6] D3[7] D4[8]\n"
                  "D1[1,2,3,4,5] D2[6]\n"
                  "D1[1,2,3,4,5]\nD1[1,2,3]\nD1[1,2]\nD1[1]\n");
    expect_counts(&play, "queued 5 running 0 requeue 0 aside 0 parked 0 tasks 4");
    /* Neighbours of the failure share with their like only; small steps end with the task. */
    run_dry(&play);
    expect(&play, "D1[1]\nD2[6]\nD3[7] D4[8]\nD5[9] D1[2]\nD1[3]\nD1[4]\nD1[5]\n");
    expect_counts(&play, "queued 0 running 0 requeue 0 aside 0 parked 0 tasks 5");
    end(&play);
}
END_TEST

START_TEST(the_next_task_is_not_split_any_more)
{
    struct play play;
    begin(&play, 10, 100, 10);
    for (int64_t seq = 1; seq <= 4; seq++)
        add(&play, "D1", seq);
    take(&play);
    split_all(&play);
    add(&play, "D1", 5);
    take(&play);
    expect(&play, "D1[1,2,3,4]\nD1[1,2]+1\n");
    done(&play, "D1");
    take(&play);
    done(&play, "D1");
    for (int64_t seq = 6; seq <= 8; seq++)
        add(&play, "D1", seq);
    run_dry(&play);
    expect(&play, "D1[3,4]+1\nD1[5,6,7,8]\n");
    end(&play);
}
END_TEST

START_TEST(a_failure_outside_the_documents_changes_nothing)
{
    struct play play;
    begin(&play, 2, 100, 10);
    add(&play, "D1", 1);
    add(&play, "D2", 2);
    add(&play, "D3", 3);
    take(&play);
    add(&play, "D1", 4);
    docs_requeue(play.docs, unlink_doc(&play, "D2"));
    docs_requeue(play.docs, unlink_doc(&play, "D1"));
    expect_counts(&play, "queued 3 running 0 requeue 0 aside 0 parked 0 tasks 2");
    run_dry(&play);
    expect(&play, "D1[1] D2[2]\nD1[1]+1 D2[2]\nD3[3] D1[4]\n");
    expect_counts(&play, "queued 0 running 0 requeue 0 aside 0 parked 0 tasks 4");
    end(&play);
}
END_TEST

/* Aside */

START_TEST(a_document_set_aside_is_the_same_task_later)
{
    struct play play;
    begin(&play, 1, 100, 10);
    add(&play, "D1", 1);
    add(&play, "D2", 2);
    take(&play);
    docs_set_aside(play.docs, unlink_doc(&play, "D1"), 500);
    add(&play, "D1", 3);
    expect_counts(&play, "queued 1 running 0 requeue 0 aside 1 parked 0 tasks 1");
    ck_assert_int_eq(docs_next_due(play.docs), 500);
    ck_assert_uint_eq(docs_wake(play.docs, 499), 0);
    ck_assert_uint_eq(docs_wake(play.docs, 500), 1);
    ck_assert_uint_eq(docs_wake(play.docs, 500), 0);
    ck_assert_int_eq(docs_next_due(play.docs), -1);
    run_dry(&play);
    expect(&play, "D1[1]\nD2[2]\nD1[1]+1\nD1[3]\n");
    expect_counts(&play, "queued 0 running 0 requeue 0 aside 0 parked 0 tasks 3");
    end(&play);
}
END_TEST

START_TEST(what_is_aside_wakes_in_the_order_of_its_times)
{
    struct play play;
    begin(&play, 10, 100, 10);
    static const char *const names[] = {"A", "B", "C", "D", "E"};
    static const int64_t due_ms[] = {300, 100, 500, 100, 200};
    for (int64_t i = 0; i < 5; i++)
        add(&play, names[i], i + 1);
    take(&play);
    for (size_t i = 0; i < 5; i++)
        docs_set_aside(play.docs, unlink_doc(&play, names[i]), due_ms[i]);
    ck_assert_uint_eq(docs_wake(play.docs, 300), 4);
    ck_assert_int_eq(docs_next_due(play.docs), 500);
    run_dry(&play);
    expect(&play, "A[1] B[2] C[3] D[4] E[5]\nB[2] D[4] E[5] A[1]\n");
    end(&play);
}
END_TEST

/* Parked */

START_TEST(a_parked_document_is_never_dispatched_by_seq)
{
    struct play play;
    begin(&play, 10, 100, 10);
    add(&play, "D1", 5);
    take(&play);
    add(&play, "D1", 600);
    struct doc *doc = unlink_doc(&play, "D1");
    docs_park(play.docs, doc, 2000, 1);
    expect_counts(&play, "queued 0 running 0 requeue 0 aside 0 parked 1 tasks 1");
    ck_assert_uint_eq(doc->count, 0);
    ck_assert_uint_eq(doc->attempts, 1);
    ck_assert_ptr_eq(docs_next_parked(play.docs), doc);
    ck_assert_int_eq(docs_next_due(play.docs), 2000);
    add(&play, "D1", 900);
    /* It does not wake by itself: its retry reads the log. */
    ck_assert_uint_eq(docs_wake(play.docs, 5000), 0);
    take(&play);
    expect(&play, "D1[5]\nD1 is parked\nnothing\n");
    expect_counts(&play, "queued 0 running 0 requeue 0 aside 0 parked 1 tasks 1");
    end(&play);
}
END_TEST

/* R11: parked at 5, waiting 600 and 900, restart at cursor 1000. */
START_TEST(a_row_loaded_at_start_covers_what_comes)
{
    struct play play;
    begin(&play, 10, 100, 10);
    struct doc *doc = docs_add_parked(play.docs, key_of("D1"), 700, 3);
    ck_assert_ptr_eq(docs_find(play.docs, key_of("D1")), doc);
    ck_assert_uint_eq(doc->attempts, 3);
    add(&play, "D1", 1100);
    add(&play, "D2", 1101);
    run_dry(&play);
    expect(&play, "D1 is parked\nD2[1101]\n");
    expect_counts(&play, "queued 0 running 0 requeue 0 aside 0 parked 1 tasks 1");
    end(&play);
}
END_TEST

START_TEST(parked_documents_are_due_in_order)
{
    struct play play;
    begin(&play, 10, 100, 10);
    static const char *const names[] = {"A", "B", "C"};
    static const int64_t due_ms[] = {300, 100, 200};
    static const char *const order[] = {"B", "C", "A"};
    ck_assert_ptr_null(docs_next_parked(play.docs));
    for (size_t i = 0; i < 3; i++)
        docs_add_parked(play.docs, key_of(names[i]), due_ms[i], 1);
    for (size_t i = 0; i < 3; i++) {
        struct doc *doc = docs_next_parked(play.docs);
        ck_assert_ptr_eq(doc, find(&play, order[i]));
        ck_assert_int_eq(docs_next_due(play.docs), doc->due_ms);
        docs_retry(play.docs, doc, 0);
    }
    ck_assert_ptr_null(docs_next_parked(play.docs));
    ck_assert_int_eq(docs_next_due(play.docs), -1);
    expect_counts(&play, "queued 0 running 3 requeue 0 aside 0 parked 0 tasks 0");
    end(&play);
}
END_TEST

START_TEST(the_next_time_is_the_earlier_one_of_aside_and_parked)
{
    static const int64_t due_ms[][2] = {{100, 200}, {200, 100}, {100, 100}};
    for (size_t i = 0; i < 3; i++) {
        struct play play;
        begin(&play, 10, 100, 10);
        add(&play, "A", 1);
        take(&play);
        docs_set_aside(play.docs, unlink_doc(&play, "A"), due_ms[i][0]);
        docs_add_parked(play.docs, key_of("P"), due_ms[i][1], 1);
        ck_assert_int_eq(docs_next_due(play.docs), 100);
        end(&play);
    }
}
END_TEST

/* R12: from the moment the retry is sent, new operations wait in memory again. */
START_TEST(operations_during_a_retry_make_the_next_task)
{
    struct play play;
    begin(&play, 10, 100, 10);
    struct doc *doc = docs_add_parked(play.docs, key_of("D1"), 0, 1);
    add(&play, "D1", 10);
    docs_retry(play.docs, doc, 10);
    ck_assert_int_eq(doc->upto, 10);
    expect_counts(&play, "queued 0 running 1 requeue 0 aside 0 parked 0 tasks 0");
    add(&play, "D1", 11);
    add(&play, "D1", 12);
    expect_counts(&play, "queued 0 running 1 requeue 1 aside 0 parked 0 tasks 0");
    take(&play);
    add(&play, "D2", 13);
    docs_unpark(play.docs, doc);
    expect_counts(&play, "queued 2 running 0 requeue 0 aside 0 parked 0 tasks 0");
    run_dry(&play);
    expect(&play, "D1 is parked\nnothing\nD2[13] D1[11,12]\n");
    expect_counts(&play, "queued 0 running 0 requeue 0 aside 0 parked 0 tasks 2");
    end(&play);
}
END_TEST

START_TEST(a_retry_that_fails_is_parked_with_what_came)
{
    struct play play;
    begin(&play, 10, 100, 10);
    struct doc *doc = docs_add_parked(play.docs, key_of("D1"), 0, 1);
    docs_retry(play.docs, doc, 10);
    add(&play, "D1", 11);
    add(&play, "D1", 12);
    ck_assert_uint_eq(doc->count, 2);
    ck_assert_int_eq(doc_waiting(doc)[0], 11);
    ck_assert_int_eq(doc_waiting(doc)[1], 12);
    docs_park(play.docs, doc, 900, 2);
    expect_counts(&play, "queued 0 running 0 requeue 0 aside 0 parked 1 tasks 0");
    ck_assert_uint_eq(doc->attempts, 2);
    ck_assert_int_eq(docs_next_due(play.docs), 900);
    docs_retry(play.docs, doc, 12);
    docs_unpark(play.docs, doc);
    ck_assert_ptr_null(docs_find(play.docs, key_of("D1")));
    expect_counts(&play, "queued 0 running 0 requeue 0 aside 0 parked 0 tasks 0");
    expect(&play, "");
    end(&play);
}
END_TEST

START_TEST(a_failure_of_the_past_does_not_outlive_its_parking)
{
    struct play play;
    begin(&play, 10, 100, 10);
    for (int64_t seq = 1; seq <= 4; seq++)
        add(&play, "D1", seq);
    take(&play);
    split_all(&play);
    take(&play);
    struct doc *doc = unlink_doc(&play, "D1");
    doc->failures = 3;
    docs_park(play.docs, doc, 0, 1);
    ck_assert_uint_eq(doc->failures, 0);
    docs_retry(play.docs, doc, 4);
    for (int64_t seq = 5; seq <= 9; seq++)
        add(&play, "D1", seq);
    docs_unpark(play.docs, doc);
    run_dry(&play);
    expect(&play, "D1[1,2,3,4]\nD1[1,2]\nD1[5,6,7,8,9]\n");
    end(&play);
}
END_TEST

/* Pinned and carried: the row of foldd.parked is being written, or is there, while a worker has the
 * document. */

START_TEST(a_document_is_pinned_while_its_row_is_written)
{
    struct play play;
    begin(&play, 10, 100, 10);
    add(&play, "D1", 1);
    take(&play);
    struct doc *doc = unlink_doc(&play, "D1");
    doc->chunk = 0;
    docs_pin(play.docs, doc);
    ck_assert(doc->released);
    /* R12: until the row is there, what comes holds the cursor. */
    add(&play, "D1", 2);
    take(&play);
    expect_counts(&play, "queued 0 running 1 requeue 1 aside 0 parked 0 tasks 1");
    ck_assert_uint_eq(doc->count, 2);
    docs_park(play.docs, doc, 700, 1);
    add(&play, "D1", 3);
    expect_counts(&play, "queued 0 running 0 requeue 0 aside 0 parked 1 tasks 1");
    ck_assert(!doc->pinned && !doc->released && !doc->carried);
    expect(&play, "D1[1]\nnothing\nD1 is parked\n");
    end(&play);
}
END_TEST

/* How a worker can be done with a document. */
enum { DONE, DONE_IN_PART, REQUEUE, SPLIT, SET_ASIDE, WAYS };

static void give_back(struct play *play, const char *name, int way)
{
    struct doc *doc = unlink_doc(play, name);
    if (way == DONE)
        docs_done(play->docs, doc, doc->chunk);
    else if (way == DONE_IN_PART)
        docs_done(play->docs, doc, doc->chunk - 1);
    else if (way == REQUEUE)
        docs_requeue(play->docs, doc);
    else if (way == SPLIT)
        docs_split(play->docs, doc, 1);
    else
        docs_set_aside(play->docs, doc, 50);
}

START_TEST(a_pinned_document_does_not_go_away)
{
    for (int way = 0; way < WAYS; way++) {
        struct play play;
        begin(&play, 10, 100, 10);
        add(&play, "D1", 1);
        add(&play, "D1", 2);
        take(&play);
        struct doc *doc = find(&play, "D1");
        docs_pin(play.docs, doc);
        ck_assert(!doc->released);
        give_back(&play, "D1", way);
        ck_assert_ptr_eq(docs_find(play.docs, key_of("D1")), doc);
        ck_assert(doc->released);
        take(&play);
        ck_assert_uint_eq(docs_wake(play.docs, 1000), 0);
        expect_counts(&play, "queued 0 running 1 requeue 0 aside 0 parked 0 tasks 1");
        add(&play, "D1", 3);
        expect_counts(&play, "queued 0 running 1 requeue 1 aside 0 parked 0 tasks 1");
        ck_assert_uint_eq(doc->count, way == DONE ? 1 : way == DONE_IN_PART ? 2 : 3);
        docs_park(play.docs, doc, 700, 1);
        expect_counts(&play, "queued 0 running 0 requeue 0 aside 0 parked 1 tasks 1");
        expect(&play, "D1[1,2]\nnothing\n");
        end(&play);
    }
}
END_TEST

START_TEST(a_carried_document_is_parked_when_the_worker_is_done)
{
    for (int way = 0; way < WAYS; way++) {
        struct play play;
        begin(&play, 10, 100, 10);
        add(&play, "D1", 1);
        add(&play, "D1", 2);
        take(&play);
        add(&play, "D1", 3);
        struct doc *doc = find(&play, "D1");
        docs_pin(play.docs, doc);
        add(&play, "D1", 4);
        docs_carry(play.docs, doc, 1);
        add(&play, "D1", 5);
        expect_counts(&play, "queued 0 running 1 requeue 1 aside 0 parked 0 tasks 1");
        ck_assert_ptr_null(docs_next_parked(play.docs));
        give_back(&play, "D1", way);
        ck_assert_ptr_eq(docs_next_parked(play.docs), doc);
        ck_assert_int_eq(docs_next_due(play.docs), 0);
        ck_assert_uint_eq(doc->count, 0);
        add(&play, "D1", 6);
        expect_counts(&play, "queued 0 running 0 requeue 0 aside 0 parked 1 tasks 1");
        docs_retry(play.docs, doc, 6);
        add(&play, "D1", 7);
        docs_unpark(play.docs, doc);
        run_dry(&play);
        expect(&play, "D1[1,2]\nD1 is parked\nD1 is parked\nD1[7]\n");
        expect_counts(&play, "queued 0 running 0 requeue 0 aside 0 parked 0 tasks 2");
        end(&play);
    }
}
END_TEST

static void pin_one(void *arg, struct doc *doc)
{
    struct play *play = arg;
    buf_printf(&play->trace, "aside %.*s\n", (int)doc->key_len, doc->key);
    if (doc->key[0] == 'B')
        docs_pin(play->docs, doc);
}

START_TEST(a_document_aside_can_be_pinned)
{
    struct play play;
    begin(&play, 10, 100, 10);
    static const char *const names[] = {"A", "B", "C"};
    for (int64_t i = 0; i < 3; i++)
        add(&play, names[i], i + 1);
    take(&play);
    for (int64_t i = 0; i < 3; i++)
        docs_set_aside(play.docs, unlink_doc(&play, names[i]), 100 * i);
    add(&play, "B", 4);
    docs_each_aside(play.docs, pin_one, &play);
    ck_assert(find(&play, "B")->released);
    expect_counts(&play, "queued 0 running 1 requeue 1 aside 2 parked 0 tasks 3");
    ck_assert_uint_eq(docs_wake(play.docs, 1000), 2);
    docs_park(play.docs, find(&play, "B"), 700, 1);
    run_dry(&play);
    expect(&play, "A[1] B[2] C[3]\naside A\naside B\naside C\nA[1] C[3]\n");
    expect_counts(&play, "queued 0 running 0 requeue 0 aside 0 parked 1 tasks 3");
    end(&play);
}
END_TEST

/* R12, once more: the row is there again only when it is written. */
START_TEST(a_retry_that_fails_is_pinned_too)
{
    struct play play;
    begin(&play, 10, 100, 10);
    struct doc *doc = docs_add_parked(play.docs, key_of("D1"), 0, 1);
    docs_retry(play.docs, doc, 10);
    docs_pin(play.docs, doc);
    ck_assert(doc->released);
    add(&play, "D1", 11);
    expect_counts(&play, "queued 0 running 1 requeue 1 aside 0 parked 0 tasks 0");
    docs_park(play.docs, doc, 900, 2);
    expect_counts(&play, "queued 0 running 0 requeue 0 aside 0 parked 1 tasks 0");
    expect(&play, "");
    end(&play);
}
END_TEST

START_TEST(a_task_knows_when_it_was_taken_first)
{
    struct play play;
    begin(&play, 1, 100, 1);
    add(&play, "D1", 1);
    add(&play, "D1", 2);
    play.now_ms = 100;
    take(&play);
    add(&play, "D1", 3);
    play.now_ms = 200;
    done(&play, "D1");
    take(&play);
    ck_assert_int_eq(find(&play, "D1")->taken_ms, 100);
    docs_requeue(play.docs, unlink_doc(&play, "D1"));
    play.now_ms = 300;
    take(&play);
    ck_assert_int_eq(find(&play, "D1")->taken_ms, 100);
    done(&play, "D1");
    take(&play);
    ck_assert_int_eq(find(&play, "D1")->taken_ms, 300);
    expect(&play, "D1[1]\nD1[2]+1\nD1[2]+1\nD1[3]\n");
    end(&play);
}
END_TEST

/* A random schedule against a naive model */

enum { DOCS = 9, SEQS = 4000, MAX_DOCS = 4, MAX_OPS = 9, CHUNK_OPS = 4 };

enum model_state { IDLE, QUEUED, RUNNING, ASIDE, PARKED, RETRYING };

/* Said as slowly as possible: seqs are never moved, order is a number given on entering a list. */
struct model_doc {
    enum model_state state;
    int64_t seqs[SEQS]; /* seqs[at .. count) wait */
    size_t at;
    size_t count;
    size_t task;
    size_t chunk;
    size_t cap;
    size_t op_cap;
    int64_t due_ms;
    int64_t place; /* in its list */
    bool pinned;
    bool released;
    bool carried;
};

struct model {
    struct model_doc docs[DOCS];
    char names[DOCS][4];
    struct docs *real;
    int64_t last_seq;
    int64_t front; /* places: below every one given, above every one given */
    int64_t back;
    uint64_t tasks;
    uint32_t random;
    unsigned moves[6]; /* how often each state was left: the schedule reaches all of them */
    unsigned pinned;
    unsigned carried;
};

static struct span model_key(const struct model *model, size_t i)
{
    return key_of(model->names[i]);
}

static void model_enter(struct model *model, struct model_doc *doc, enum model_state state,
                        bool at_head)
{
    model->moves[doc->state]++;
    doc->state = state;
    doc->place = at_head ? --model->front : ++model->back;
}

/* The document in that state that comes first by (due, place); DOCS: none. */
static size_t model_first(const struct model *model, enum model_state state)
{
    size_t first = DOCS;
    for (size_t i = 0; i < DOCS; i++) {
        const struct model_doc *doc = &model->docs[i];
        if (doc->state != state)
            continue;
        const struct model_doc *best = first < DOCS ? &model->docs[first] : NULL;
        int64_t due_ms = state == QUEUED ? 0 : doc->due_ms;
        int64_t best_ms = best == NULL || state == QUEUED ? 0 : best->due_ms;
        if (best == NULL || due_ms < best_ms || (due_ms == best_ms && doc->place < best->place))
            first = i;
    }
    return first;
}

static size_t min(size_t a, size_t b)
{
    return a < b ? a : b;
}

static struct docs_counts model_counts(const struct model *model)
{
    struct docs_counts counts = {.tasks = model->tasks};
    for (size_t i = 0; i < DOCS; i++) {
        const struct model_doc *doc = &model->docs[i];
        size_t waiting = doc->count - doc->at;
        counts.queued += doc->state == QUEUED;
        counts.running += doc->state == RUNNING || doc->state == RETRYING;
        counts.requeue += (doc->state == RUNNING && waiting > doc->task) ||
                          (doc->state == RETRYING && waiting > 0);
        counts.aside += doc->state == ASIDE;
        counts.parked += doc->state == PARKED;
    }
    return counts;
}

static void compare_doc(const struct model *model, size_t i)
{
    static const enum doc_state states[] = {
        [QUEUED] = DOC_QUEUED, [RUNNING] = DOC_RUNNING,   [ASIDE] = DOC_ASIDE,
        [PARKED] = DOC_PARKED, [RETRYING] = DOC_RETRYING,
    };
    const struct model_doc *expected = &model->docs[i];
    const struct doc *doc = docs_find(model->real, model_key(model, i));
    size_t waiting = expected->count - expected->at;
    if ((doc != NULL) != (expected->state != IDLE))
        ck_abort_msg("%s: entry", model->names[i]);
    if (doc == NULL)
        return;
    if (doc->state != states[expected->state] || doc->count != waiting)
        ck_abort_msg("%s: state %d, %zu waiting", model->names[i], (int)doc->state, doc->count);
    if (waiting > 0 &&
        memcmp(doc_waiting(doc), expected->seqs + expected->at, waiting * sizeof(int64_t)) != 0)
        ck_abort_msg("%s: not the operations that wait", model->names[i]);
}

static void compare(const struct model *model)
{
    struct docs_counts real = docs_counts(model->real);
    struct docs_counts naive = model_counts(model);
    if (memcmp(&real, &naive, sizeof(real)) != 0)
        ck_abort_msg("queued %zu %zu running %zu %zu requeue %zu %zu aside %zu %zu parked %zu %zu "
                     "tasks %llu %llu",
                     real.queued, naive.queued, real.running, naive.running, real.requeue,
                     naive.requeue, real.aside, naive.aside, real.parked, naive.parked,
                     (unsigned long long)real.tasks, (unsigned long long)naive.tasks);
    for (size_t i = 0; i < DOCS; i++)
        compare_doc(model, i);
    size_t aside = model_first(model, ASIDE);
    size_t parked = model_first(model, PARKED);
    const struct doc *next = docs_next_parked(model->real);
    if (next != (parked == DOCS ? NULL : docs_find(model->real, model_key(model, parked))))
        ck_abort_msg("not the parked document that is due next");
    int64_t due_ms = -1;
    if (aside < DOCS)
        due_ms = model->docs[aside].due_ms;
    if (parked < DOCS && (due_ms < 0 || model->docs[parked].due_ms < due_ms))
        due_ms = model->docs[parked].due_ms;
    if (docs_next_due(model->real) != due_ms)
        ck_abort_msg("due %lld", (long long)due_ms);
}

static void step_add(struct model *model, size_t i)
{
    struct model_doc *doc = &model->docs[i];
    int64_t seq = ++model->last_seq;
    bool covered = doc->state == PARKED || doc->carried;
    if (docs_add(model->real, model_key(model, i), seq) == covered)
        ck_abort_msg("add %lld", (long long)seq);
    if (covered)
        return;
    if (doc->state == IDLE)
        model_enter(model, doc, QUEUED, false);
    doc->seqs[doc->count++] = seq;
}

/* What the statement must hold next, or DOCS. */
static size_t model_take_one(struct model *model, size_t count, size_t *cap, size_t *ops)
{
    size_t i = model_first(model, QUEUED);
    if (i == DOCS || count == MAX_DOCS || (count > 0 && count == *cap))
        return DOCS;
    struct model_doc *doc = &model->docs[i];
    size_t chunk = min(doc->task > 0 ? doc->task : doc->count - doc->at, CHUNK_OPS);
    if (doc->op_cap > 0)
        chunk = min(chunk, doc->op_cap);
    if (count == 0)
        *cap = doc->cap;
    else if (doc->cap != *cap || *ops + chunk > MAX_OPS)
        return DOCS;
    if (doc->task == 0) {
        doc->task = doc->count - doc->at;
        model->tasks++;
    }
    doc->chunk = chunk;
    *ops += chunk;
    model_enter(model, doc, RUNNING, false);
    return i;
}

static void step_take(struct model *model)
{
    struct doc_list taken = TAILQ_HEAD_INITIALIZER(taken);
    size_t left = docs_take(model->real, &taken, 0);
    size_t cap = 0;
    size_t ops = 0;
    size_t i;
    for (size_t count = 0; (i = model_take_one(model, count, &cap, &ops)) < DOCS; count++, left--) {
        struct doc *doc = TAILQ_FIRST(&taken);
        if (doc == NULL || doc != docs_find(model->real, model_key(model, i)))
            ck_abort_msg("%s is not in its turn", model->names[i]);
        /* R11: a chunk is the oldest that waits, without a gap. */
        if (doc->chunk != model->docs[i].chunk || doc_chunk(doc) != doc_waiting(doc))
            ck_abort_msg("%s: a chunk of %zu", model->names[i], doc->chunk);
        TAILQ_REMOVE(&taken, doc, link);
    }
    if (left != 0 || !TAILQ_EMPTY(&taken))
        ck_abort_msg("more was taken than is due");
}

static void model_park(struct model *model, struct model_doc *doc, int64_t due_ms)
{
    doc->at = doc->count;
    doc->task = doc->cap = doc->op_cap = 0;
    doc->pinned = doc->released = doc->carried = false;
    doc->due_ms = due_ms;
    model_enter(model, doc, PARKED, false);
}

/* The worker is done with the document: it goes there, unless it is being parked. */
static void model_give_back(struct model *model, struct model_doc *doc, enum model_state state,
                            bool at_head)
{
    if (doc->carried)
        model_park(model, doc, 0);
    else if (doc->pinned)
        doc->released = true;
    else
        model_enter(model, doc, state, at_head);
}

static void step_done(struct model *model, struct model_doc *doc, struct doc *real, size_t count)
{
    docs_done(model->real, real, count);
    doc->at += count;
    doc->task -= count;
    doc->cap = 0;
    if (doc->task == 0)
        doc->op_cap = 0;
    model_give_back(model, doc, doc->at == doc->count ? IDLE : QUEUED, count < doc->chunk);
}

static void step_split(struct model *model, struct model_doc *doc, struct doc *real)
{
    size_t batch_docs = 1 + unit_random(&model->random) % MAX_DOCS;
    docs_split(model->real, real, batch_docs);
    if (batch_docs > 1)
        doc->cap = (batch_docs + 1) / 2;
    else
        doc->op_cap = (doc->chunk + 1) / 2;
    model_give_back(model, doc, QUEUED, true);
}

static void step_pin(struct model *model, struct model_doc *doc, struct doc *real, bool released)
{
    if (released)
        real->chunk = 0;
    docs_pin(model->real, real);
    doc->pinned = true;
    doc->released = released;
    model->pinned++;
}

/* The row is written. */
static void step_written(struct model *model, struct model_doc *doc, struct doc *real,
                         int64_t due_ms)
{
    if (real->released != doc->released)
        ck_abort_msg("released: %d", real->released);
    if (doc->released) {
        docs_park(model->real, real, due_ms, 1);
        model_park(model, doc, due_ms);
        return;
    }
    docs_carry(model->real, real, 1);
    doc->pinned = false;
    doc->carried = true;
    model->carried++;
}

static void step_running(struct model *model, size_t i, int64_t due_ms)
{
    struct model_doc *doc = &model->docs[i];
    struct doc *real = docs_find(model->real, model_key(model, i));
    uint32_t random = unit_random(&model->random);
    if (doc->released || (doc->pinned && random % 16 < 8)) {
        step_written(model, doc, real, due_ms);
        return;
    }
    switch (random % 8) {
    case 0:
        step_split(model, doc, real);
        break;
    case 1:
        docs_requeue(model->real, real);
        model_give_back(model, doc, QUEUED, true);
        break;
    case 2:
        docs_set_aside(model->real, real, due_ms);
        doc->due_ms = due_ms;
        model_give_back(model, doc, ASIDE, false);
        break;
    case 3:
        if (!doc->pinned && !doc->carried)
            step_pin(model, doc, real, random / 8 % 2 == 0);
        break;
    case 4:
        step_done(model, doc, real, random / 8 % (doc->chunk + 1));
        break;
    default:
        step_done(model, doc, real, doc->chunk);
    }
}

static void step_retrying(struct model *model, size_t i, int64_t due_ms)
{
    struct model_doc *doc = &model->docs[i];
    struct doc *real = docs_find(model->real, model_key(model, i));
    if (doc->pinned) {
        step_written(model, doc, real, due_ms);
    } else if (unit_random(&model->random) % 3 == 0) {
        step_pin(model, doc, real, true);
    } else {
        docs_unpark(model->real, real);
        model_enter(model, doc, doc->at == doc->count ? IDLE : QUEUED, false);
    }
}

/* One of the documents aside is to be parked. */
static void pin_aside(void *arg, struct doc *real)
{
    struct model *model = arg;
    struct model_doc *doc = &model->docs[real->key[0] - 'A'];
    if (doc->state != ASIDE)
        ck_abort_msg("%c is not aside", real->key[0]);
    if (unit_random(&model->random) % 4 != 0)
        return;
    step_pin(model, doc, real, true);
    model_enter(model, doc, RUNNING, false);
}

static void step_wake(struct model *model, int64_t now_ms)
{
    size_t count = 0;
    size_t i;
    while ((i = model_first(model, ASIDE)) < DOCS && model->docs[i].due_ms <= now_ms) {
        model_enter(model, &model->docs[i], QUEUED, false);
        count++;
    }
    if (docs_wake(model->real, now_ms) != count)
        ck_abort_msg("woke others than %zu", count);
}

static void step_document(struct model *model, size_t i, int64_t now_ms)
{
    struct model_doc *doc = &model->docs[i];
    int64_t due_ms = now_ms + unit_random(&model->random) % 20;
    if (doc->state == RUNNING) {
        step_running(model, i, due_ms);
    } else if (doc->state == RETRYING) {
        step_retrying(model, i, due_ms);
    } else if (doc->state == PARKED) {
        docs_retry(model->real, docs_find(model->real, model_key(model, i)), model->last_seq);
        model_enter(model, doc, RETRYING, false);
    } else if (doc->state == IDLE && unit_random(&model->random) % 8 == 0) {
        docs_add_parked(model->real, model_key(model, i), due_ms, 1);
        doc->due_ms = due_ms;
        model_enter(model, doc, PARKED, false);
    }
}

START_TEST(random_schedules_agree_with_the_model)
{
    static struct model model;
    const struct docs_limits limits = {MAX_DOCS, MAX_OPS, CHUNK_OPS};
    memset(&model, 0, sizeof(model));
    model.random = (uint32_t)_i + 1;
    model.real = docs_new(&limits);
    for (size_t i = 0; i < DOCS; i++)
        model.names[i][0] = (char)('A' + i);
    for (int64_t now_ms = 0; model.last_seq < SEQS - 1; now_ms++) {
        uint32_t random = unit_random(&model.random);
        size_t i = random / 16 % DOCS;
        /* Some schedules are hurried, some are idle. */
        uint32_t adding = 4 + (uint32_t)_i % 6;
        if (random % 16 < adding)
            step_add(&model, i);
        else if (random % 16 < 11)
            step_document(&model, i, now_ms);
        else if (random % 16 < 15)
            step_take(&model);
        else if (random / 256 % 4 > 0)
            step_wake(&model, now_ms);
        else
            docs_each_aside(model.real, pin_aside, &model);
        compare(&model);
    }
    for (size_t state = 0; state < 6; state++)
        ck_assert_uint_gt(model.moves[state], 10);
    ck_assert_uint_gt(model.pinned, 10);
    ck_assert_uint_gt(model.carried, 10);
    docs_free(model.real);
}
END_TEST

static TCase *player_case(void)
{
    TCase *tcase = tcase_create("trace");
    tcase_add_test(tcase, an_idle_document_has_no_entry);
    tcase_add_test(tcase, an_update_during_a_run_gives_one_more);
    tcase_add_test(tcase, five_operations_during_two_runs_give_two_more);
    tcase_add_test(tcase, ten_thousand_during_a_run_give_one_more);
    tcase_add_test(tcase, an_update_between_commit_and_completion_is_not_lost);
    tcase_add_test(tcase, a_requeued_document_goes_behind_queued_ones);
    tcase_add_test(tcase, what_comes_before_the_run_joins_the_task);
    tcase_add_test(tcase, a_statement_is_full_at_its_caps);
    tcase_add_test(tcase, chunks_of_a_task_count_once_and_queue_behind_others);
    tcase_add_test(tcase, a_huge_document_does_not_starve_the_others);
    tcase_add_test(tcase, what_is_left_of_a_chunk_runs_next);
    tcase_add_test(tcase, a_failed_statement_is_split_by_documents_then_by_operations);
    tcase_add_test(tcase, the_next_task_is_not_split_any_more);
    tcase_add_test(tcase, a_failure_outside_the_documents_changes_nothing);
    tcase_add_test(tcase, a_document_set_aside_is_the_same_task_later);
    tcase_add_test(tcase, what_is_aside_wakes_in_the_order_of_its_times);
    tcase_add_test(tcase, a_parked_document_is_never_dispatched_by_seq);
    tcase_add_test(tcase, a_row_loaded_at_start_covers_what_comes);
    tcase_add_test(tcase, parked_documents_are_due_in_order);
    tcase_add_test(tcase, the_next_time_is_the_earlier_one_of_aside_and_parked);
    tcase_add_test(tcase, operations_during_a_retry_make_the_next_task);
    tcase_add_test(tcase, a_retry_that_fails_is_parked_with_what_came);
    tcase_add_test(tcase, a_failure_of_the_past_does_not_outlive_its_parking);
    tcase_add_test(tcase, a_document_is_pinned_while_its_row_is_written);
    tcase_add_test(tcase, a_pinned_document_does_not_go_away);
    tcase_add_test(tcase, a_carried_document_is_parked_when_the_worker_is_done);
    tcase_add_test(tcase, a_document_aside_can_be_pinned);
    tcase_add_test(tcase, a_retry_that_fails_is_pinned_too);
    tcase_add_test(tcase, a_task_knows_when_it_was_taken_first);
    return tcase;
}

Suite *docs_suite(void)
{
    Suite *suite = suite_create("docs");
    suite_add_tcase(suite, player_case());
    TCase *tcase = tcase_create("model");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, random_schedules_agree_with_the_model, 0, 12);
    suite_add_tcase(suite, tcase);
    return suite;
}
