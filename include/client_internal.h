/* SPDX-License-Identifier: MIT */
/*
 * client_internal: what client.c (connections, replies, the turn) and client_read.c (bytes in,
 * lines to the handler, memory for lines) share.
 */
#ifndef FOLDD_CLIENT_INTERNAL_H
#define FOLDD_CLIENT_INTERNAL_H

#include "client.h"
#include "line.h"
#include "overdue.h"
#include "peer.h"

struct event;
struct evbuffer;

/* Of the memory for lines that are not whole yet. */
enum input_state {
    INPUT_SHORT, /* it has what everybody may have */
    INPUT_LONG,  /* it was granted max_line */
    INPUT_HELD,  /* it waits for that, and is not read */
};

struct client {
    TAILQ_ENTRY(client) link;
    TAILQ_ENTRY(client) dirty_link;
    TAILQ_ENTRY(client) blocked_link;
    TAILQ_ENTRY(client) greedy_link; /* while more is true */
    TAILQ_ENTRY(client) long_link;   /* in clients->granted or held, as input_state says */
    struct overdue_node half_line;   /* runs while a line has begun */
    struct overdue_node grant;       /* runs while others wait for the memory that it has */
    struct overdue_node unread;      /* runs while replies are not taken */
    struct clients *clients;
    int fd;
    int64_t id;
    struct event *read_event;
    struct event *write_event;
    struct line input;
    enum input_state input_state;
    struct evbuffer *output;
    STAILQ_HEAD(, slot) slots;
    struct slot *no_room;       /* the write that found no room; blocks reading */
    bool failing;               /* R9: operations are refused until the first refusal is written */
    const struct slot *refusal; /* that reply, until it is in the output */
    size_t charge;
    size_t counted; /* its part of clients->load */
    size_t peak;    /* the most that it held */
    size_t waits;
    int unsent; /* what the kernel had for the peer when the time of unread began */
    int64_t lines;
    bool dirty;
    bool more;    /* lines are left that the others' turns come before */
    bool paused;  /* full: not read until half empty */
    bool eof;     /* the peer sends no more */
    bool closing; /* reads no more: close when everything is sent */
    bool dead;    /* free at the end of the turn */
    bool admin;
    char actor[PEER_NAME_MAX];
};

TAILQ_HEAD(client_list, client);

struct clients {
    struct event_base *base;
    struct client_limits limits;
    struct client_handler handler;
    struct client_list all;
    struct client_list dirty;
    struct client_list blocked;
    struct client_list greedy; /* have lines left from their last turn; the next turns are theirs */
    struct client_list granted;
    struct client_list held; /* who waits first comes first */
    size_t grants;
    struct overdue half_lines;
    struct overdue wanted; /* grants that others wait for */
    struct overdue unread;
    struct event *hangup_timer;
    struct event *trim_timer;
    size_t count;
    size_t load;  /* bytes under way of all, as each was counted last */
    size_t freed; /* what connections that are gone held, and the system has not got back */
    int64_t last_id;
    int readers; /* connections that were read in this turn */
    int share;   /* lines that each of them may have in the next one */
    bool stopped;
};

/* --- client.c */

/* The turn of the loop looks at the connection. */
void client_mark_dirty(struct client *client);
/* Close it at the end of the turn, whatever is under way. */
void client_die(struct client *client);
/* Whether the connection has as much under way as it may. */
bool client_is_full(struct client *client);
/* Borrowed: a slot for the line that was counted last, behind all others. */
struct slot *client_add_slot(struct client *client, size_t bytes);

/* --- client_read.c */

/* A turn is over: who had lines left goes on in the next one, the first in line and not all at
 * once, with what follows from how many were read. */
void clients_share_turn(struct clients *clients);
/* The connection has lines left, or no more. */
void client_set_more(struct client *client, bool more);

/* Read from the connection or not, as its state says. */
void client_set_reading(struct client *client);
/* Something can be read; arg is the client. */
void client_on_read(int fd, short what, void *arg);
/* Take lines that were read before, and go on reading. */
void client_take_lines(struct client *client);
/* Forget what was read. */
void client_drop_input(struct client *client);
/* Answer with an error what cannot be a line, and end the connection behind that. */
void client_end_with_error(struct client *client, enum reply_code code, const char *message);
/* A line has been unfinished for too long, or has had memory for too long; arg is the clients. */
void client_on_line_overdue(void *arg, struct overdue_node *node);
void client_on_grant_overdue(void *arg, struct overdue_node *node);
/* There may be memory for long lines. */
void clients_grant(struct clients *clients);

#endif
