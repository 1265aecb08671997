"""Chats as Hugging Face's transformers encodes them, for the tests of chat templates, and chats to train on.

Needs `pip install transformers==5.24.0 tokenizers==0.23.3 jinja2`.

  make_fixtures.py    writes marked.json, a tokenizer with <s> and </s>; cases.jsonl: for each template random chats, the ids that
                      apply_chat_template gives, and which of them are learned; and sums.jsonl, chats of one small task

The templates are those of the models' tokenizer_config.json on Hugging Face, cut down to messages without tools and without a
prompt for generation. Each is there twice: as published, which gives the ids, and with {% generation %} around what the assistant
says, which gives the mask.
"""
import json
import random
from pathlib import Path

from tokenizers import AddedToken, Tokenizer
from transformers import PreTrainedTokenizerFast

FOLDER = Path(__file__).resolve().parent
TOKENIZERS = FOLDER.parent / "huggingface"
CASES = 30

ALTERNATE = ("{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate "
             "user/assistant/user/assistant/...') }}{% endif %}")
# Qwen2.5-7B-Instruct; Qwen2-7B-Instruct has another system message.
QWEN = """{%- if messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>system\\nDEFAULT<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role + '\\n' }}{% generation %}{{- message.content + '<|im_end|>' }}{% endgeneration %}{{- '\\n' }}
    {%- endif %}
{%- endfor %}
"""
# Qwen1.5, OpenHermes and others
CHATML = ("{% for message in messages %}{% if message['role'] == 'assistant' %}{{'<|im_start|>assistant\\n'}}{% generation %}"
          "{{message['content'] + '<|im_end|>'}}{% endgeneration %}{{'\\n'}}{% else %}"
          "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endif %}{% endfor %}")
# Meta-Llama-3-8B-Instruct
LLAMA3 = ("{% set loop_messages = messages %}{% for message in loop_messages %}"
          "{% set start = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' %}"
          "{% set content = message['content'] | trim + '<|eot_id|>' %}"
          "{% if loop.index0 == 0 %}{% set start = bos_token + start %}{% endif %}{{ start }}"
          "{% if message['role'] == 'assistant' %}{% generation %}{{ content }}{% endgeneration %}{% else %}{{ content }}{% endif %}"
          "{% endfor %}")
# Llama-3.1-8B-Instruct
LLAMA31 = """{{- bos_token }}
{%- set date_string = "26 Jul 2024" %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{{- "Cutting Knowledge Date: December 2023\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
    {%- if message['role'] == 'assistant' %}
        {%- generation %}{{- message['content'] | trim + '<|eot_id|>' }}{%- endgeneration %}
    {%- else %}
        {{- message['content'] | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
"""
# Llama-2-7b-chat-hf
LLAMA2 = ("{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}"
          "{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}"
          + ALTERNATE +
          "{% if loop.index0 == 0 and system_message != false %}"
          "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}"
          "{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}"
          "{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' ' }}{% generation %}"
          "{{ content.strip() + ' ' + eos_token }}{% endgeneration %}{% endif %}{% endfor %}")
# Mistral-7B-Instruct-v0.2, Mixtral-8x7B-Instruct-v0.1
MISTRAL = ("{{ bos_token }}{% for message in messages %}" + ALTERNATE + "{% if message['role'] == 'user' %}"
           "{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{% generation %}"
           "{{ message['content'] + eos_token}}{% endgeneration %}{% else %}"
           "{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}")
# zephyr-7b-beta, TinyLlama-1.1B-Chat-v1.0
ZEPHYR = """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>\\n' }}{% generation %}{{- message['content'] + eos_token }}{% endgeneration %}{{ '\\n' }}{% endif %}
{% endfor %}"""

PUBLISHED = {
    "chatml": "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
              "{% endfor %}",
    "llama3": "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + "
              "message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}"
              "{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}",
    "llama2": "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
              "{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}"
              "{% set system_message = false %}{% endif %}{% for message in loop_messages %}" + ALTERNATE +
              "{% if loop.index0 == 0 and system_message != false %}"
              "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}"
              "{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}"
              "{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}"
              "{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}",
    "mistral": "{{ bos_token }}{% for message in messages %}" + ALTERNATE + "{% if message['role'] == 'user' %}"
               "{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}"
               "{{ message['content'] + eos_token}}{% else %}"
               "{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}",
    "zephyr": "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\\n' + message['content'] + eos_token }}\n"
              "{% elif message['role'] == 'system' %}\n{{ '<|system|>\\n' + message['content'] + eos_token }}\n"
              "{% elif message['role'] == 'assistant' %}\n{{ '<|assistant|>\\n'  + message['content'] + eos_token }}\n{% endif %}\n"
              "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}",
}
# The same with {% generation %}; for Qwen2 and Llama 3.1 that is written into the published one.
TEMPLATES = {
    "chatml": ("qwen2", CHATML), "qwen2": ("qwen2", QWEN.replace("DEFAULT", "You are a helpful assistant.")),
    "qwen2.5": ("qwen2", QWEN.replace("DEFAULT", "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.")),
    "llama3": ("llama3", LLAMA3), "llama3.1": ("llama3", LLAMA31), "llama2": ("marked", LLAMA2), "mistral": ("marked", MISTRAL),
    "zephyr": ("marked", ZEPHYR)}
WORDS = ["the", "model", "answers", "naïve", "Grüße", "42", "1,000", "a  b", "\n", "\n\n", "\t", " ", "don't", "你好", "🙂", "<tool_call>",
         "[INST]", "<<SYS>>", "user|>", "assistant", "word", "e\u0301", "\u3000", "x = 1;", "<left>", "user\n", "...", ":", "café"]


def marked_tokenizer():
    """gpt2.json with the tokens that Llama 2's descendants begin and end with."""
    tokenizer = Tokenizer.from_file(str(TOKENIZERS / "gpt2.json"))
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in ("<s>", "</s>")])
    tokenizer.save(str(FOLDER / "marked.json"), pretty=False)


def tokenizer_of(name):
    file = (FOLDER if name == "marked" else TOKENIZERS) / f"{name}.json"
    names = {"marked": ("<s>", "</s>"), "llama3": ("<|begin_of_text|>", "<|eot_id|>"), "qwen2": (None, "<|im_end|>")}[name]
    return PreTrainedTokenizerFast(tokenizer_file=str(file), bos_token=names[0], eos_token=names[1])


def content(draw):
    return draw.choice(["", " "]).join(draw.choice(WORDS) for _ in range(draw.randint(0, 8)))


def chat(draw, name):
    messages = []
    if name != "mistral" and draw.random() < 0.4:
        messages.append({"role": "system", "content": content(draw)})
    for _ in range(draw.randint(1, 3)):
        messages.append({"role": "user", "content": content(draw)})
        messages.append({"role": "assistant", "content": content(draw)})
    if draw.random() < 0.2:
        messages.pop()
    return messages


def cases():
    draw = random.Random(1)
    for name, (tokenizer_name, template) in TEMPLATES.items():
        tokenizer = tokenizer_of(tokenizer_name)
        for _ in range(CASES):
            messages = chat(draw, name)
            encoded = tokenizer.apply_chat_template(messages, chat_template=template, tokenize=True, return_dict=True,
                                                    return_assistant_tokens_mask=True)
            published = PUBLISHED.get(name, template.replace("{% generation %}", "").replace("{% endgeneration %}", "")
                                      .replace("{%- generation %}", "").replace("{%- endgeneration %}", ""))
            ids = tokenizer.apply_chat_template(messages, chat_template=published, tokenize=True, return_dict=True)["input_ids"]
            assert ids == encoded["input_ids"], (name, messages)
            yield {"template": name, "tokenizer": tokenizer_name, "messages": messages, "ids": ids,
                   "learned": "".join(map(str, encoded["assistant_masks"]))}


def sums():
    """A task that a small model learns in a few hundred steps: the sum of two digits, in words."""
    numbers = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
               "eighteen").split()
    draw = random.Random(2)
    for _ in range(400):
        a, b = draw.randrange(10), draw.randrange(10)
        yield {"messages": [{"role": "user", "content": f"What is {numbers[a]} and {numbers[b]}?"},
                            {"role": "assistant", "content": f"It is {numbers[a + b]}."}]}


def write(name, lines):
    (FOLDER / name).write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


marked_tokenizer()
write("cases.jsonl", cases())
write("sums.jsonl", sums())
