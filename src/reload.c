/* SPDX-License-Identifier: MIT */
#include "reload.h"

#include "buf.h"
#include "log.h"

bool reload_make_rules(const struct config *config, struct peer_rules *rules, struct err *err)
{
    const struct peer_rules_text text = {config->admin_groups, config->allow_users,
                                         config->allow_groups};
    return peer_rules_init(rules, &text, err);
}

static void add_word(struct buf *words, const char *word)
{
    buf_printf(words, "%s%s", words->len > 0 ? " " : "", word);
}

static void take_over(struct config *config, struct config *fresh)
{
    struct buf changed = {0};
    struct buf needs_restart = {0};
    for (const struct config_option *option = config_options; option->key != NULL; option++) {
        if (config_same(config, fresh, option))
            continue;
        if (option->change == CONFIG_RELOAD)
            config_swap(config, fresh, option);
        add_word(option->change == CONFIG_RELOAD ? &changed : &needs_restart, option->key);
    }
    log_info("reloaded", "changed=%s", log_text(buf_cstr(&changed)));
    if (needs_restart.len > 0)
        log_warning("needs_a_restart", "options=%s", log_text(buf_cstr(&needs_restart)));
    buf_fini(&changed);
    buf_fini(&needs_restart);
}

/* Everything that can fail comes before anything changes. */
bool reload_config(const struct reload_source *source, struct config *config,
                   struct peer_rules *rules, struct err *err)
{
    struct config fresh;
    struct peer_rules unused = {0};
    config_init(&fresh);
    bool ok = source->read(source->arg, &fresh, err) && reload_make_rules(&fresh, &unused, err);
    if (ok) {
        struct peer_rules old = *rules;
        *rules = unused;
        unused = old;
        take_over(config, &fresh);
    }
    peer_rules_fini(&unused);
    config_fini(&fresh);
    return ok;
}
