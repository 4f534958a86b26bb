"""Questions with short answers for training with search: Search-R1's train and test sets."""

from verl_trgrpo.tasks.task import AgentLoop, Builder, Sampling, Scoring, Task

SEARCH_AGENT = "trgrpo_search"
"""Name by which veRL finds the agent loop of the rows, as in agent_loops.yaml."""

QUESTION_SETS = ("nq", "triviaqa", "popqa", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle")
"""The sets that Search-R1 reports and veRL's reward router knows, in Search-R1's order."""

_SCORING = Scoring(f"{__name__}.reward:score_search_qa")
TASK = Task(
    rewards=dict.fromkeys(("search_qa", "searchR1_*"), _SCORING),
    foreign=dict.fromkeys(QUESTION_SETS, _SCORING),
    builders={
        "search-qa": Builder(f"{__name__}.rows:build_search_qa", "build the Parquet files of Search-R1's questions")
    },
    agent_loops={
        SEARCH_AGENT: AgentLoop(
            f"{__name__}.loop:SearchAgentLoop",
            override="agent=search_tags",
            section="search",
            options=f"{__name__}.search_options:read_search_options",
            opened=f"{__name__}.client:opened",
            places=("url",),  # the same documents may be served at another address
            failures={"failed_searches": "see the search server's log"},
        )
    },
    presets={"search_qa": Sampling(1, 0.0, 1.0, 4500)},
)
