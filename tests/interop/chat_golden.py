#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# chat_golden.py - chat templates rendered by transformers, for
# tests/unit/test_chat.c: python3 chat_golden.py > tests/golden/chat.json
#
# Templates are ours, in the forms that models of each family have (their marks,
# their output); transformers' apply_chat_template says what comes of them.
# Needs transformers and jinja2. Written with transformers 4.57.
import json
import sys

from transformers import PreTrainedTokenizerFast
from tokenizers import Tokenizer, models

LOOP = "{% for message in messages %}"
TURN = "(message['role'] == 'user') != (loop.index0 % 2 == 0)"
CHATML = (LOOP + "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
CHATML_SYSTEM = (LOOP + "{% if loop.first and messages[0]['role'] != 'system' %}"
                 "{{ '<|im_start|>system\\nYou are of help, made by us.<|im_end|>\\n' }}{% endif %}"
                 "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
                 "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
# as Qwen2.5's, with its branch of tools left out
CHATML_ELSE = """{%- if messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>system\\nYou are of help.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant") %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
QWEN3 = """{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(last_query_index=0) %}
{%- for message in messages %}
    {%- if message.role == 'user' %}{%- set ns.last_query_index = loop.index0 %}{%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {{- '<|im_start|>user\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {%- set content = message.content.split('</think>')[-1] %}
        {%- if '</think>' in message.content %}{%- set content = content.lstrip('\\n') %}{%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {{- '<|im_start|>assistant\\n' + '<think>\\n\\n</think>\\n\\n' + content + '<|im_end|>\\n' }}
        {%- else %}
            {{- '<|im_start|>assistant\\n' + content + '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""
HEAD = "'<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'"
LLAMA3 = (LOOP + "{% set content = " + HEAD + " + message['content'] | trim + '<|eot_id|>' %}"
          "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}")
LLAMA31 = """{{- bos_token }}
{%- if not date_string is defined %}{%- set date_string = "26 Jul 2024" %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}{%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{{- "Cutting Knowledge Date: December 2023\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {{- """ + HEAD + """ + message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
LLAMA2 = ("{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set system = messages[0]['content'] %}"
          "{% else %}{% set rest = messages %}{% set system = false %}{% endif %}{% for message in rest %}"
          "{% if " + TURN + " %}{{ raise_exception('turns') }}{% endif %}{% if loop.index0 == 0 and system != false %}"
          "{% set content = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}"
          "{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}"
          "{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}"
          "{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}")
MISTRAL = ("{{ bos_token }}" + LOOP + "{% if " + TURN + " %}{{ raise_exception('turns') }}{% endif %}"
           "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
           "{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token END }}{% endif %}{% endfor %}")
GEMMA = ("{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
         + LOOP + "{% if " + TURN + " %}{{ raise_exception('turns') }}{% endif %}"
         "{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}"
         "{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}"
         "{% if add_generation_prompt %}{{'<start_of_turn>model\\n'}}{% endif %}")
GEMMA3 = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set first_user_prefix = messages[0]['content'] + '\\n\\n' -%}{%- set rest = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}{%- set rest = messages -%}
{%- endif -%}
{%- for message in rest -%}
    {%- if """ + TURN + """ -%}{{ raise_exception("turns") }}{%- endif -%}
    {%- set role = "model" if message['role'] == 'assistant' else message['role'] -%}
    {{ '<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else "") }}
    {{- message['content'] | trim }}
    {{- '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ '<start_of_turn>model\\n' }}
{%- endif -%}
"""

CASES = [
    ("chatml", CHATML, None, "</s>"),
    ("chatml, system inside", CHATML_SYSTEM, None, "<|im_end|>"),
    ("chatml, system in else", CHATML_ELSE, None, "<|im_end|>"),
    ("qwen3", QWEN3, None, "<|im_end|>"),
    ("llama3", LLAMA3, "<|begin_of_text|>", "<|eot_id|>"),
    ("llama3.1", LLAMA31, "<|begin_of_text|>", "<|eot_id|>"),
    ("llama2", LLAMA2, "<s>", "</s>"),
    ("mistral v0.1", MISTRAL.replace(" END", " + ' '"), "<s>", "</s>"),
    ("mistral v0.2", MISTRAL.replace(" END", ""), "<s>", "</s>"),
    ("gemma", GEMMA, "<bos>", "<eos>"),
    ("gemma3", GEMMA3, "<bos>", "<eos>"),
]
ONE = [("user", "12+34=")]
LONG = [("user", "Hello"), ("assistant", "Hi there"), ("user", " Who are you \n"),
        ("assistant", "<think>\nhm\n</think>\n\n  I am an assistant  "), ("user", "Another \u00e4 question\n\n")]
TALKS = [ONE, LONG, [("system", "Be brief.")] + ONE, [("system", " Be brief.\n")] + LONG,
         [("user", "a"), ("user", "b")], [("user", "a"), ("system", "b"), ("user", "c")]]


def render(template, bos, eos, talk):
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), bos_token=bos, eos_token=eos)
    tokenizer.chat_template = template
    messages = [{"role": r, "content": c} for r, c in talk]
    try:
        return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except Exception as e:  # what a template raises
        if "turns" not in str(e) and "System role" not in str(e):
            raise
        return None


def main():
    out = []
    for name, template, bos, eos in CASES:
        talks = []
        for talk in TALKS:
            if any(r == "system" for r, _ in talk[1:]):
                text = None  # no family of ours has a form for it
            elif "mistral" in name and talk[0][0] == "system":
                text = None  # roles are not in turn
            else:
                text = render(template, bos, eos, talk)
            talks.append({"messages": [{"role": r, "content": c} for r, c in talk], "text": text})
        out.append({"name": name, "template": template, "bos_token": bos, "eos_token": eos, "talks": talks})
    json.dump(out, sys.stdout, indent=1)
    print()


main()
