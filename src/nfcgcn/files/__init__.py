"""Files: read with clear errors and bounded sizes, written completely or not at all."""

from nfcgcn.files.drafts import recover as recover
from nfcgcn.files.drafts import sync as sync
from nfcgcn.files.inputs import FREE_BYTES as FREE_BYTES
from nfcgcn.files.inputs import MAX_BYTES as MAX_BYTES
from nfcgcn.files.inputs import cache_folder as cache_folder
from nfcgcn.files.inputs import check_size as check_size
from nfcgcn.files.inputs import is_folder as is_folder
from nfcgcn.files.inputs import open_regular as open_regular
from nfcgcn.files.inputs import parse_json as parse_json
from nfcgcn.files.inputs import parsing as parsing
from nfcgcn.files.inputs import read_regular as read_regular
from nfcgcn.files.inputs import reading as reading
from nfcgcn.files.inputs import to_json as to_json
from nfcgcn.files.outputs import UNFINISHED as UNFINISHED
from nfcgcn.files.outputs import check_free as check_free
from nfcgcn.files.outputs import check_writable as check_writable
from nfcgcn.files.outputs import draft_of as draft_of
from nfcgcn.files.outputs import in_folder as in_folder
from nfcgcn.files.outputs import new_file as new_file
from nfcgcn.files.outputs import new_folder as new_folder
from nfcgcn.files.outputs import write_bytes as write_bytes
from nfcgcn.files.outputs import write_text as write_text
