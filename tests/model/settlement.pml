/*
 * Settlement of one batch, for Spin: every order of steps of everybody who may end it, while GitLab and people
 * go on. One `atomic` below is one thing that is indivisible in reality: one statement or transaction on the
 * database, one call to GitLab. Between two of them anything may happen, a death included.
 *
 * Where the steps come from: look and decide = reconcile.py, verdict/decide.py; publish = publish.py;
 * give_up, clean = ending.py; settle = settlement.py and the commit resolver of db; hooks = deliveries.py.
 *
 * Rules (asserted after every step that touches them; `ends` is a formula):
 *   merged wins      the MR is merged and the batch has ended: it is SUCCEEDED; and SUCCEEDED only if merged
 *   one winner       at most one settlement, one caller told WON, no effect before its commit
 *   nothing reopens  no write ever meets a terminal row
 *   agreement        the members say the same as their batch
 *   ends             settled, told and cleaned up, once GitLab and people rest (weak fairness)
 *
 * Knowingly accepted, because GitLab and the database share no transaction:
 *   BRANCH  Nobody restores by hand the branch that we deleted, to merge from it; and GitLab lets us delete it.
 *
 * Why the branch is deleted before the re-read, and not after the settlement (-DDELETE_LAST):
 *   LATE    Between our last look and the deletion somebody could reopen the MR, or a publisher open it at that
 *           moment, and it could be merged: GitLab has merged what we settle as FAILED. `late` marks these runs;
 *           -DDELETE_LAST fails on them, -DDELETE_LAST -DEXCUSE_LATE shows that nothing else is wrong.
 *   SEEN    Such a merge was told only if it came before the clean-up's look; -DREPORTED asks that each is told.
 *
 * Broken on purpose, one macro each, for Spin to find: README.md lists them.
 */

/* How much happens in one run. README.md says which sizes are checked. */
#ifndef HANDS
#define HANDS 2 /* who acts at the same time; at each look a hand is webhook, poller, sweep or operator */
#endif
#ifndef TROUBLE
#define TROUBLE 1 /* deaths, calls not executed, lost answers to COMMIT, merges that fail: in all */
#endif
#ifndef PEOPLE
#define PEOPLE 2 /* what people do at GitLab: merge, close, reopen, delete the branch: in all */
#endif
#ifndef HOOKS
#define HOOKS true /* false: each is lost, and the poller does it all */
#endif
#ifndef BLOCKS
#define BLOCKS true /* once something stands against merging: RUNNING to BLOCKED and back */
#endif
#ifndef PUBLISHED
#define PUBLISHED false /* true: begin with the MR open and recorded */
#endif

mtype:row = { RUNNING, BLOCKED, SUCCEEDED, FAILED };
mtype:fate = { merging, landed, released };
mtype:mr = { unseen, none, opened, locked, closed, merged };

/* The batch row, and what became of its members. */
mtype:row status = RUNNING;
mtype:fate members = merging;
byte version = 1;
byte token; /* who wrote the settlement: with the version it names one attempt */
bool recorded = PUBLISHED, asked, cleaned;

/* GitLab. */
mtype:mr mr = (PUBLISHED -> opened : none);
bool branch = true; /* pushed, and its head recorded: where the model begins */

/* The world. */
bool past_deadline;
byte hooks; /* on their way; a lost one never was, a doubled one counts twice */
byte trouble = TROUBLE;
byte people = PEOPLE;
bool blocks_it = BLOCKS;
#ifdef PAYLOAD_BELIEVED
mtype:mr payload = unseen;
#endif

/* Book-keeping of the proof: nobody in the model decides by it. */
byte settlements, effects;
bool late;
#ifdef REPORTED
bool reported;
#endif

#define ENDED (status == SUCCEEDED || status == FAILED)
#define DONE (ENDED && cleaned)
#define AS_READ (status == seen && version == seen_version)
#define RUNS_AS_READ (status == RUNNING && version == seen_version)
#define BLOCKED_AS_READ (status == BLOCKED && version == seen_version)
#define MINE (token == _pid && version == seen_version + 1)
#define DIES trouble > 0 -> trouble--; rest()

#ifdef EXCUSE_LATE
#define EXCUSED late
#else
#define EXCUSED false
#endif

#if defined(NO_GUARD)
#define GUARD true
#elif defined(STATUS_ONLY)
#define GUARD (status == seen)
#elif defined(TERMINAL_NOT_GUARDED)
#define GUARD (version == seen_version)
#else
#define GUARD AS_READ
#endif

inline rules()
{
	assert(!(mr == merged && status == FAILED) || EXCUSED); /* merged wins */
	assert(status != SUCCEEDED || mr == merged);            /* success is true */
	assert(settlements <= 1);                               /* one winner */
	assert(effects <= settlements);                         /* no effect before its commit */
	assert((status == SUCCEEDED) == (members == landed));   /* agreement */
	assert((status == FAILED) == (members == released))     /* agreement */
}

/* Everything that happens to the MR comes through here; its hook is lost, or comes. */
inline change_mr(after)
{
	mr = after;
#ifdef PAYLOAD_BELIEVED
	payload = mr;
#endif
	if
	:: true
	:: HOOKS -> hooks = 1
	:: HOOKS -> hooks = 2
	fi;
	rules()
}

/* Created or reopened. After a FAILED settlement that is the accepted gap. */
inline open_mr()
{
	late = late || status == FAILED;
	change_mr(opened)
}

/* A write of any fact or state; its guard stands before it. */
inline write_row()
{
	assert(!ENDED); /* nothing reopens */
	version++
}

inline read_row()
{
	seen = status;
	seen_version = version
}

inline get_mr()
{
	shown = mr;
	last_look = mr /* never assumed: for the book-keeping */
}

/* The accepted gap, seen by the settlement: opened since the last look, and no row said so. */
inline excuse()
{
	late = late || (status == FAILED && mr != closed && mr != none &&
		(last_look == closed || (last_look == none && !recorded)))
}

/* An error line: merged after it was settled as failed. */
inline report()
{
#ifdef REPORTED
	reported = true
#else
	skip
#endif
}

/* The end of a look, a death, an unanswered call: each leaves nothing behind in memory. */
inline rest()
{
	seen = RUNNING;
	seen_version = 0;
	was_past = false;
	shown = unseen;
	last_look = unseen;
	goto end_idle
}

inline move_members()
{
	members = (status == SUCCEEDED -> landed : released)
}

/* The transaction once its guard holds. */
inline commit()
{
	write_row();
	token = _pid;
	settlements++;
	if
	:: shown == merged -> status = SUCCEEDED
	:: shown != merged -> status = FAILED
	fi;
#ifdef TERMINAL_NOT_GUARDED
	version--;
#endif
#ifndef TWO_TRANSACTIONS
	move_members();
#endif
#if !defined(EFFECT_BEFORE_COMMIT) && !defined(EFFECT_IN_MEMORY)
	effects++;
#endif
	excuse();
	rules()
}

inline won()
{
	assert(ENDED && token == _pid); /* only the winner is told WON */
#ifdef EFFECT_IN_MEMORY
	effects++;
#endif
#ifdef TWO_TRANSACTIONS
	goto members_later
#else
	goto clean
#endif
}

inline lost()
{
	assert(!(ENDED && token == _pid)); /* the winner is never told LOST */
	rest()
}

/* A writer of facts has lost its batch: what it has left at GitLab goes, if the batch has ended. */
inline stale()
{
	if
	:: ENDED -> goto clean
	:: !ENDED -> rest()
	fi
}

/* How it ends, by the last look; open or merging: not yet. */
inline judge()
{
	if
	:: shown == merged -> goto settle
	:: shown == closed || shown == none -> goto settle
#ifdef LOCKED_IS_CLOSED
	:: shown == locked -> shown = closed; goto settle
#endif
	:: else -> rest()
	fi
}

/* Read the row; whatever needs no look at GitLab is decided by it alone. */
inline begin_look()
{
	read_row();
	if
	:: recorded -> was_past = past_deadline; goto look
	:: !recorded && past_deadline -> goto give_up
	:: !recorded && !past_deadline && status == RUNNING -> goto open
	:: !recorded && !past_deadline && status == BLOCKED -> goto unblock
	fi
}

proctype Hand()
{
	mtype:row seen = RUNNING;
	byte seen_version;
	bool was_past;
	mtype:mr shown = unseen, last_look = unseen;

end_idle:
	atomic {
		if
		:: !DONE && hooks > 0 -> /* webhook */
			hooks--;
			if
			:: ENDED -> rest()
#ifdef PAYLOAD_BELIEVED
			:: !ENDED && recorded && payload != unseen ->
				read_row();
				was_past = past_deadline;
				shown = payload;
				goto decide
#endif
			:: !ENDED -> begin_look()
			fi
#ifndef WEBHOOK_ONLY
		:: !DONE -> /* poller, and the sweep: a poller that finds the deadline passed */
			if
#ifdef WINNER_CLEANS
			:: ENDED -> rest()
#else
			:: ENDED -> goto clean
#endif
			:: !ENDED -> begin_look()
			fi
#endif
		:: !ENDED -> /* an operator's wish to fail it */
			read_row();
			goto give_up
		fi
	}

look: /* observe, decide */
	atomic {
		if
		:: get_mr()
		:: DIES
		fi;
#ifdef PAYLOAD_BELIEVED
decide:
#endif
		if
		:: shown == merged -> was_past = false; goto settle
		:: shown == closed ->
			was_past = false;
#ifndef DELETE_LAST
			shown = unseen;
			last_look = unseen;
			goto give_up
#else
			goto settle
#endif
		:: shown == locked -> rest()
#ifdef BLIND_SWEEP
		:: shown == opened && was_past -> shown = closed; last_look = unseen; was_past = false; goto settle
#endif
		:: shown == opened -> /* past the deadline; or a failed pipeline, by policy */
			was_past = false;
			shown = unseen;
			last_look = unseen;
			goto give_up
		:: shown == opened && !was_past -> /* the pipeline runs, people think */
			rest()
		:: shown == opened && !was_past && seen == RUNNING && !asked -> goto ask
		:: shown == opened && !was_past && seen == RUNNING && blocks_it -> goto block
		:: shown == opened && !was_past && seen == BLOCKED -> goto unblock
		fi
	}

open: /* find or create the merge request; GitLab refuses without the branch */
	atomic {
		if
		:: mr != none
		:: mr == none && branch -> open_mr()
		:: mr == none && !branch -> rest()
		:: DIES
		fi
	}
	atomic {
		if
		:: RUNS_AS_READ && !recorded -> write_row(); recorded = true; rest()
		:: !(RUNS_AS_READ && !recorded) -> stale()
		:: DIES
		fi
	}

ask: /* the intention first, then the call */
	atomic {
		if
		:: RUNS_AS_READ -> write_row(); asked = true
		:: !RUNS_AS_READ -> stale()
		:: DIES
		fi
	}
	atomic {
		if
		:: mr == opened && branch -> change_mr(locked)
		:: !(mr == opened && branch) /* not now */
		:: DIES
		fi;
		rest()
	}

block:
	atomic {
		if
		:: RUNS_AS_READ -> write_row(); status = BLOCKED; blocks_it = false
		:: !RUNS_AS_READ
		:: DIES
		fi;
		rest()
	}

unblock: /* the cause is gone, or an operator says so */
	atomic {
		if
#ifdef FACT_UNGUARDED
		:: true -> write_row(); status = RUNNING; rest()
#else
		:: BLOCKED_AS_READ -> write_row(); status = RUNNING; rest()
		:: !BLOCKED_AS_READ -> stale()
#endif
		:: DIES
		fi
	}

give_up: /* the merge request as recorded, or found by the branch's name */
	atomic {
		if
		:: get_mr()
		:: DIES
		fi;
#ifndef DELETE_LAST
		if
		:: shown == merged || shown == locked -> judge()
		:: shown == opened || shown == closed || shown == none
		fi
#else
		if
		:: shown == opened
		:: shown != opened -> judge()
		fi
#endif
	}
	atomic { /* close: GitLab closes what is open and nothing else */
		if
		:: mr == opened -> change_mr(closed)
		:: mr != opened
		:: trouble > 0 -> trouble-- /* not executed, and the answer does not say so */
		:: DIES
		fi
	}
#ifndef DELETE_LAST
	atomic {
		if
		:: branch = false
		:: DIES
		fi
	}
#endif
	atomic { /* a death here is the one between close and re-read */
		if
#ifdef NO_REREAD
		:: shown = closed; last_look = unseen
#else
		:: get_mr()
#endif
		:: DIES
		fi;
		judge()
	}

settle: /* one transaction: the guarded batch write first, then members and effects */
#ifdef EFFECT_BEFORE_COMMIT
	atomic { effects++; rules() }
#endif
	atomic {
		if
		:: GUARD ->
			commit();
			if
			:: won()
			:: DIES
			:: trouble > 0 -> trouble--; goto unknown
			fi
		:: !(GUARD) -> lost()
		:: trouble > 0 -> trouble--; goto unknown /* not committed, and the answer is lost */
		:: DIES
		fi
	}

unknown: /* the resolver reads this attempt's token under a lock; not there: the transaction runs again */
	atomic {
		if
#ifdef UNKNOWN_IS_LOST
		:: lost()
#else
		:: MINE -> won()
		:: !MINE -> goto settle
#endif
		fi
	}

#ifdef TWO_TRANSACTIONS
members_later:
	atomic { move_members(); goto clean }
#endif

clean: /* after a failure: close what is open, tell what was merged; then the branch */
	atomic {
		seen = RUNNING;
		seen_version = 0;
		last_look = unseen;
		shown = unseen;
		if
		:: status == FAILED && mr == merged -> report(); goto delete
		:: status == FAILED && mr == opened
		:: status == FAILED && mr != merged && mr != opened -> goto delete
		:: status == SUCCEEDED -> goto delete
		:: DIES
		fi
	}
	atomic {
		if
		:: mr == opened -> change_mr(closed)
		:: mr != opened
		:: DIES
		fi
	}
delete:
	atomic {
		if
		:: branch = false
		:: DIES
		fi
	}
	atomic {
		if
		:: cleaned = true; rest()
		:: DIES
		fi
	}
}

/* GitLab's own work: a merge that has begun ends, an MR without its branch is closed. */
active proctype GitLab()
{
end_work:
	do
	:: atomic { mr == locked -> change_mr(merged) }
	:: atomic { mr == locked && trouble > 0 -> trouble--; change_mr(opened) }
	:: atomic { mr == opened && !branch -> change_mr(closed) }
	od
}

active proctype People()
{
end_there:
	do
	:: atomic { people > 0 && mr == opened && branch -> people--; change_mr(locked) }
	:: atomic { people > 0 && mr == opened -> people--; change_mr(closed) }
	:: atomic { people > 0 && mr == closed && branch -> people--; open_mr() }
	:: atomic { people > 0 && branch -> people--; branch = false }
	:: atomic { people > 0 -> people = 0 } /* they go home */
	od
}

active proctype Clock()
{
	past_deadline = true
}

init
{
	byte hands;
	atomic {
		do
		:: hands < HANDS -> run Hand(); hands++
		:: else -> break
		od;
		hands = 0
	}
}

#ifdef REPORTED
ltl told { [] ((status == FAILED && mr == merged) -> <> reported) }
#else
ltl ends { <> (DONE && effects == 1) }
#endif
