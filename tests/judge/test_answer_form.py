"""The form that a prompt asks for, in wordings of public data sets, and the reading of a response in it."""

import pytest
from transformers import AutoTokenizer

from tests.tasks.work import work
from verl_trgrpo.data.prompts import opens_thinking
from verl_trgrpo.demos.puzzles import CHECKPOINT
from verl_trgrpo.judge.answer_form import (
    ANSWER_FORMS,
    MAX_ANSWER_CHARS,
    REASONING_MARKS,
    after_reasoning,
    asked_form,
    read_answer,
    state_answer,
)
from verl_trgrpo.tasks.reward_input import reward_input

DAPO = (
    "Solve the following math problem step by step. The last line of your response should be of the form Answer: $Answer "
    "(without quotes) where $Answer is the answer to the problem.\n\nFind $2+2$.\n\n"
    'Remember to put your answer on its own line after "Answer:".'
)
R1 = (
    "The reasoning process and answer are enclosed within <think> </think> and <answer> </answer> tags, respectively, i.e., "
    "<think> reasoning process here </think><answer> answer here </answer>."
)
ASKED = {
    "DeepScaleR": ("Q Let's think step by step and output the final answer within \\boxed{}.", "box"),
    "Qwen": ("Please reason step by step, and put your final answer within \\boxed{}.\nQ", "box"),
    "written without a raw string": ("Please put your final answer within \x08oxed{}.", "box"),
    "Nemotron": ("Make sure to put the answer (and only answer) inside \\boxed{}.\n\nQ", "box"),
    "PRIME": ("Q\n\nPresent the answer in LaTex format: \\boxed{Your answer}", "box"),
    "Llama": ("Always conclude with:\n\nTherefore, the final answer is: $\\boxed{answer}$. I hope it is correct.\n\nQ", "box"),
    "Geometry3K": ("The reasoning process MUST BE enclosed within <think> </think> tags. "
                   "The final answer MUST BE put in \\boxed{}.", "box"),
    "Chinese": ("请逐步推理，并将最终答案放在 \\boxed{} 中。", "box"),
    "Chinese line": ("请一步步思考，最后一行以“答案：”开头给出答案。", "line"),
    "Chinese line with a placeholder": ("最后一行的格式为“答案：$答案”。", "line"),
    "Chinese, forbidden": ("给出答案，但不要使用 \\boxed{}。", None),
    "Chinese, the beginning of the answer": ("求解：1+1。答案：", None),
    "last line in a box": ("The last line of your response should only contain your final answer inside a \\boxed{} command.\n\n"
                           "Q\n\nRemember to put your final answer on the last line using the format \\boxed{$ANSWER}.", "box"),
    "Open-Reasoner-Zero": (f"{R1} You must put your answer inside <answer> </answer> tags, i.e., <answer> answer here </answer>. "
                           "And your final answer will be extracted automatically by the \\boxed{} tag.", "box"),
    "DAPO": (DAPO, "line"),
    "simple-evals": (DAPO.removesuffix(".") + ", and you do not need to use a \\boxed command.", "line"),
    "quoted": ('The last line of your response should be of the form "ANSWER: $ANSWER" (without quotes). Q', "line"),
    "multiple choice": ("The last line of your response should be of the following format: 'Answer: $LETTER' (without quotes) "
                        "where LETTER is one of ABCD.\n\nQ", "line"),
    "line with a box": ("The last line of your response should be of the form Answer: \\boxed{$Answer}. Q", "line"),
    "end with": ("Q\nEnd with 'Answer: ...'.", "line"),
    "format below": ("Q\nGive the result at the end in the following format:\n\nAnswer: <number>", "line"),
    "wrapped": ("The last line of your response should be of the form\nAnswer: $Answer (without quotes). Q", "line"),
    "bold": ("When you are done, write **Answer:** [your answer].", "line"),
    "final answer": ('Output "Final Answer: " followed by the number.', "line"),
    "placeholder in angle brackets": ("The last line must be of the form Answer: <answer> where <answer> is the answer.", "line"),
    "not in a box": ('Do not use \\boxed{}. End your response with "Answer: $ANSWER".', "line"),
    "MGSM in Chinese": ('最后一行应该以 "答案: " 的形式独立给出答案。在 "答案：" 后不要添加除整数答案之外的任何内容。', "line"),
    "MGSM in German": ('Gib die endgültige Antwort in der letzten Zeile alleine im Format "Antwort:".', "line"),
    "a heading in German": ("Frage: Q\nAntwort: 5", None),
    "an answer behind its problem": ("Solve $x=84. Answer: $\\left(3\\right)$.", None),
    "R1": (R1, "tags"),
    "TinyZero": ("Show your work in <think> </think> tags. And return the final answer in <answer> </answer> tags, for example "
                 "<answer> (1 + 2) / 3 </answer>.", "tags"),
    "Search-R1": ("You can directly provide the answer inside <answer> and </answer>, without detailed illustrations. For "
                  "example, <answer> Beijing </answer>. Question: Q", "tags"),
    "box in tags": ("Put your final answer within <answer>\\boxed{}</answer> tags.", "tags"),
    "box, then tags": ("Use \\boxed{} for your answer, and put the box inside <answer> </answer> tags.", "tags"),
    "GSM8K": ('Q Let\'s think step by step and output the final answer after "####".', "hashes"),
    "GSM8K, format": ("End with your final answer in the following format: #### final_answer", "hashes"),
    "nothing": ("What is $2+2$?", None),
    "the word": ("Find the answer: how many apples are there?", None),
    "the word at the start of a sentence": ("Which is true? Answer: yes or no.", None),
    "the beginning of the answer": ("Question: What is 2+2?\nAnswer:", None),
    "the beginning of the reasoning": ("Question: What is 2+2?\nAnswer:\nLet's think step by step.", None),
    "solved examples": ("Q: Write 5 in the form a+b.\nAnswer: 2+3\n\nQ: Write 6 in the form a+b.\nAnswer:", None),
    "quoted speech": ('Tom\'s homework said: "The answer: 42". What did Bob say?', None),
    "box of the problem": ("What number goes into $3+\\boxed{}=5$?", None),
    "headings": ("#### Problem\nWhat is the answer to everything?\n#### Answer\n", None),
    "forbidden": ("Give your final answer without \\boxed{}.", None),
    "empty": ("", None),
}  # fmt: skip


@pytest.mark.parametrize(("prompt", "form"), ASKED.values(), ids=ASKED.keys())
def test_the_form_that_a_prompt_asks_for(prompt, form):
    assert asked_form(prompt) == form
    assert asked_form([{"role": "user", "content": prompt}]) == form


def test_messages_of_system_and_user_are_read_in_order():
    system, user = {"role": "system", "content": R1}, {"role": "user", "content": DAPO}
    assert asked_form([system, {"role": "user", "content": "What is 2+2?"}]) == "tags"
    assert asked_form([system, user]) == "line"
    assert asked_form([{"role": "assistant", "content": R1}, {"role": "user", "content": "And 3+3?"}]) is None
    parts = [{"type": "image", "image": "x.png"}, {"type": "text", "text": DAPO}]
    assert asked_form([{"role": "user", "content": parts}]) == "line"


@pytest.mark.parametrize("prompt", [None, [], [{"role": "user"}], ["text"], [{"role": "user", "content": None}]])
def test_what_is_not_a_prompt_asks_for_nothing(prompt):
    assert asked_form(prompt) is None


@pytest.mark.parametrize("form", ANSWER_FORMS)
def test_a_stated_answer_is_read_back_in_its_form(form):
    response = state_answer(r"\frac{1}{2}", form)
    assert read_answer(response, form) == r"\frac{1}{2}"
    assert read_answer(f"<think>{state_answer('7', form)}</think> {response}", form) == r"\frac{1}{2}"
    assert read_answer(f"{state_answer('7', form)}\n\n{response}\n", form) == r"\frac{1}{2}"
    assert read_answer("the answer is 5", form) is None and read_answer("", form) is None
    assert read_answer(state_answer("x" * (MAX_ANSWER_CHARS + 1), form), form) is None


BOXED = {
    "plain": (r"so \boxed{5}.", "5"),
    "fbox": (r"\fbox{5}", "5"),
    "space before the brace": (r"\boxed {5}", "5"),
    "nested braces": (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
    "escaped braces": (r"\boxed{\left\{1,2\right.}", r"\left\{1,2\right."),
    "line break in a matrix": (r"\boxed{a \\{b}}", r"a \\{b}"),
    "the last box counts": (r"\boxed{1}. No, \boxed{2}", "2"),
    "other words between boxes": (r"\boxed{1} as well as \boxed{2}", None),
    "the last box of either kind": (r"Not \boxed{1}. So \fbox{2}", "2"),
    "box in a box": (r"\boxed{\boxed{5}}", "5"),
    "after the reasoning": (r"<think>\boxed{1}</think> \boxed{2}", "2"),
    "opened in the prompt": (r"\boxed{1}</think> \boxed{2}", "2"),
    "only in the reasoning": (r"<think>\boxed{1}</think> 1", None),
    "reasoning not finished": (r"<think> so \boxed{1}", None),
    "reasoning opened again": (r"<think></think>\boxed{1}<think>", None),
    "reasoning twice": (r"<think></think>\boxed{1}</think>\boxed{2}", "2"),
    "no box": ("the answer is 5", None),
    "open box": (r"\boxed{5", None),
    "last box open": (r"\boxed{5} \boxed{6", None),
    "box without braces": (r"\boxed 5", "5"),
    "box without braces in a formula": (r"so $\boxed -2.5$.", "-2.5"),
    "box without braces of more than a number": (r"\boxed 5x", None),
    "the mere word after a box": (r"\boxed{5} is what \boxed asks for", "5"),
    "the mere word at the end": (r"\boxed{5}. As \boxed", "5"),
    "the mere word alone": (r"no \boxed here", None),
    "many mere words": (r"\boxed " * 1000, None),
    "empty box": (r"\boxed{}", ""),
    "longest answer": (rf"\boxed{{{'x' * MAX_ANSWER_CHARS}}}", "x" * MAX_ANSWER_CHARS),
    "too long an answer": (rf"\boxed{{{'x' * (MAX_ANSWER_CHARS + 1)}}}", None),
    "many boxes": (r"\boxed{" * 1000, None),
    "empty": ("", None),
    "sign in front": (r"x=-\boxed{5}", r"x=-\boxed{5}"),
    "sign in front, in a formula": (r"so $x = - \boxed{5}$.", r"x = - \boxed{5}"),
    "in a fraction": (r"\frac{\boxed{3}}{4}", r"\frac{\boxed{3}}{4}"),
    "factor in front": (r"$2\cdot\boxed{7}$", r"2\cdot\boxed{7}"),
    "factor behind": (r"\boxed{5}\sqrt{2}", r"\boxed{5}\sqrt{2}"),
    "power behind": (r"\[\boxed{2}^{10}\]", r"\boxed{2}^{10}"),
    "base behind": (r"$\boxed{1011}_2$", r"\boxed{1011}_2"),
    "degrees behind": (r"$\boxed{30}^\circ$", "30"),
    "equals sign in front": (r"$3+4=\boxed{7}$", "7"),
    "equals sign behind": (r"$\boxed{7}=3+4$", "7"),
    "list mark in front": ("- \\boxed{7}", "7"),
    "dash of a sentence": (r"Answer - $\boxed{7}$", "7"),
    "another behind": (r"$\boxed{5}$ or $7$", None),
    "another box": (r"\boxed{5} or \boxed{7}", "5, 7"),
    "in other words": (r"\boxed{5} or simply five", "5"),
    "denied": (r"The answer is not \boxed{5}.", None),
    "denied behind": (r"\boxed{5} is wrong", None),
    "a denial of the sentence before": (r"It is not 7, so the answer is \boxed{5}.", "5"),
    "a denial of something else": (r"It is not hard to see that it is \boxed{5}.", "5"),
    "a reason behind": (r"\boxed{5}, which is not 7 because x is odd.", "5"),
    "an answer and words": (r"\boxed{5} and we are done.", "5"),
    "the same box twice": (r"\boxed{5}, \boxed{5}", "5"),
    "boxes side by side": (r"\boxed{7} \boxed{5}", "7, 5"),
    "a list of boxes": (r"\[\boxed{(4,2)} \text{ and } \boxed{(6,5)}\]", "(4,2), (6,5)"),
    "boxes with names": (r"$x=\boxed{2}$; $y=\boxed{8}$", "x=2, y=8"),
    "boxes line by line": ("1. $\\boxed{3}$\n2. $\\boxed{5}$", "3, 5"),
    "a list with a sign": (r"$-\boxed{2}, \boxed{8}$", None),
    "two parts": (r"From \text{(1)}, \boxed{5}", "5"),
    "number word behind": (r"\boxed{5} million", None),
    "unit behind": (r"\boxed{5}\text{ cm}", "5"),
    "parenthesis around": (r"($\boxed{5}$)", "5"),
}


@pytest.mark.parametrize(("response", "answer"), BOXED.values(), ids=BOXED.keys())
def test_the_box(response, answer):
    assert read_answer(response, "box") == answer


LINES = {
    "last line": ("Steps.\n\nAnswer: 42", "42"),
    "the last of two": ("Answer: 41\nNo.\nAnswer: 42", "42"),
    "bold": ("**Answer:** 42", "42"),
    "final answer": ("**Final Answer:** 42", "42"),
    "in dollars": ("Answer: $42$", "$42$"),
    "on the next line": ("Answer:\n42", "42"),
    "behind a blank line": ("**Answer:**\n\n42\n", "42"),
    "box in the line": (r"Answer: \boxed{42}", "42"),
    "box behind the line": ("Answer: 41\n" + r"So \boxed{42}.", "42"),
    "box on the next line": ("Answer:\n" + r"\boxed{42}", "42"),
    "box in front of the line": (r"\boxed{41}" + "\nAnswer: 42", "42"),
    "a box alone": (r"So \boxed{42}", "42"),
    "amid a line": ("The answer: 42", None),
    "empty": ("Answer:", None),
    "empty at the end": ("Answer:\n\n", None),
    "in unfinished reasoning": ("<think>Answer: 42", None),
    "in finished reasoning": ("<think>Answer: 42</think> so", None),
    "formula on the next line": ("Answer:\n$$\n42\n$$", "42"),
    "formula in brackets on the next line": ("Answer:\n\\[\n42\n\\]", "42"),
    "full-width colon": ("Answer：42", "42"),
    "Chinese": ("答案：42", "42"),
    "list mark": ("- Answer: 42", "42"),
    "quoted": ("> Answer: 42", "42"),
    "heading": ("**Final Answer**\n\n42", "42"),
    "end of the text": ("Answer: 42<|im_end|>", "42"),
}


@pytest.mark.parametrize(("response", "answer"), LINES.values(), ids=LINES.keys())
def test_the_line(response, answer):
    assert read_answer(response, "line") == answer


TAGS = {
    "plain": ("<answer> 42 </answer>", "42"),
    "the last complete pair": ("<answer>41</answer> no, <answer>42</answer> <answer>4", "42"),
    "a tag that is only mentioned": ("In <answer> I write <answer>42</answer>", "42"),
    "a closing tag that is only mentioned": ("<answer>42</answer> I closed it with </answer>.", "42"),
    "closed twice": ("<answer>42</answer></answer>", "42"),
    "a closing tag first": ("</answer><answer>42</answer>", "42"),
    "over several lines": ("<answer>\n42\n</answer>\n", "42"),
    "box in the tags": (r"<answer>It is \boxed{42}.</answer>", "42"),
    "open box in the tags": (r"<answer>\boxed{42</answer>", None),
    "box outside the tags": (r"\boxed{41}<answer>42</answer>\boxed{43}", "42"),
    "a box alone": (r"\boxed{42}", None),
    "cut off": ("<answer>42", None),
    "never opened": ("42</answer>", None),
    "empty": ("<answer> </answer>", None),
    "only in the reasoning": ("<think><answer>42</answer></think>", None),
}


@pytest.mark.parametrize(("response", "answer"), TAGS.values(), ids=TAGS.keys())
def test_the_tags(response, answer):
    assert read_answer(response, "tags") == answer


def test_the_line_of_gsm8k():
    assert read_answer("5 * 8 = 40\n#### 42", "hashes") == "42"
    assert read_answer("#### 41\n#### 42", "hashes") == "42"
    assert read_answer("#### Result\nIt is \\boxed{42}.", "hashes") == "42"
    assert read_answer("##### 42", "hashes") is None
    assert read_answer("The answer is #### 42", "hashes") == "42"


@pytest.mark.parametrize(("begin", "end"), REASONING_MARKS.items())
@pytest.mark.parametrize("form", ANSWER_FORMS)
def test_reasoning_has_many_marks(begin, end, form):
    other, right = state_answer("4", form), state_answer("5", form)
    for marks in ((begin, end), (begin.upper(), end.upper())):
        assert read_answer(f"{marks[0]}{other}", form) is None
        assert read_answer(f"{marks[0]}{other}{marks[1]}\n{right}", form) == "5"
        assert read_answer(f"{other}{marks[1]}\n{right}", form, thinking_opened=True) == "5"


def test_a_run_adds_marks_of_reasoning(monkeypatch):
    monkeypatch.setitem(REASONING_MARKS, "<plan>", "</plan>")
    assert after_reasoning("<plan>4</plan>5") == "5" and after_reasoning("<plan>4") is None


@pytest.mark.parametrize("form", ANSWER_FORMS)
def test_reasoning_that_the_prompt_opened_has_to_be_closed(form):
    response = state_answer("5", form)
    assert read_answer(response, form, thinking_opened=True) is None
    assert read_answer(f"{state_answer('4', form)}</think>\n{response}", form, thinking_opened=True) == "5"
    assert after_reasoning(response, True) is None and after_reasoning(response) == response


@pytest.mark.parametrize(
    "piece", [r"\boxed ", "Answer:\n", "Answer: \n ", "<answer>", "</answer>", "#### ", "\n\n", "* ", "\n "]
)
def test_the_work_is_linear_in_the_length(piece):
    for form in ANSWER_FORMS:
        short, long = (work(read_answer, piece * n, form) for n in (1_000, 8_000))
        assert long <= 9 * short
    short, long = (work(asked_form, piece * n) for n in (500, 4_000))
    assert long <= 9 * short


def test_work_that_grows_with_the_square_is_found():
    def square(text):
        return [letter for end in range(len(text)) for letter in text[:end]]

    assert work(square, "x" * 800) > 9 * work(square, "x" * 100)


TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}A:"
ENDINGS = {
    "DeepSeek-R1-Distill": ("<think>\n{% endif %}", {}, True),
    "closed": ("<think>\n\n</think>\n\n{% endif %}", {}, False),
    "plain": ("{% endif %}", {}, False),
    "by an option": ("{% if think %}<think>{% endif %}{% endif %}", {"think": True}, True),
    "by an option that is off": ("{% if think %}<think>{% endif %}{% endif %}", {"think": False}, False),
    "refuses the chat": ("{{ raise_exception('a system message is missing') }}{% endif %}", {}, False),
}


@pytest.mark.parametrize(("ending", "options", "opened"), ENDINGS.values(), ids=ENDINGS.keys())
def test_whether_the_chat_template_opens_the_reasoning(ending, options, opened):
    tokenizer = AutoTokenizer.from_pretrained(CHECKPOINT)
    assert opens_thinking(tokenizer, chat_template=TEMPLATE + ending, **options) is opened
    tokenizer.chat_template = TEMPLATE + ending
    assert opens_thinking(tokenizer, **options) is opened
    tokenizer.chat_template = None
    assert opens_thinking(tokenizer) is False


def test_the_extra_info_of_the_row_stays_as_it_is():
    row = {"index": 3}
    given = reward_input(row, "What?", thinking_opened=True, cut_off=True)
    assert row == {"index": 3}
    assert given == {"index": 3, "raw_prompt": "What?", "thinking_opened": True, "cut_off": True}
    assert reward_input(None, None) == {"raw_prompt": None, "thinking_opened": False, "cut_off": False}
