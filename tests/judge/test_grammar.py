"""What surrounds a value is understood wherever it is, and a near-wrong neighbour of each kind is not paid."""

import re

import pytest

from verl_trgrpo.judge import judge_answer
from verl_trgrpo.judge.grammar import GRAMMAR, read_condition, read_parts, read_pieces, read_sentence
from verl_trgrpo.judge.spelling import normalize

KINDS = {
    "qualifiers of free constants": ([
        ("f(x)=cx", r"f(x)=cx \text{ for any real number } c"),
        ("f(x)=ax+b", r"f(x)=ax+b \text{ where } a \text{ and } b \text{ are real constants}"),
        ("f(x)=ax+b", r"f(x)=ax+b,\quad a,b\in\mathbb{R}"),
        ("f(x)=ax+b", r"f(x)=ax+b \text{ with } a, b \text{ arbitrary constants}"),
        (r"y=Ce^{x} \text{ for some constant } C", "y=Ce^x"),
        ("y=Ce^{x}", r"y=Ce^x, \text{ where } C \text{ is an arbitrary constant}"),
        ("y=Ce^{x}", r"y=Ce^x \ (C \in \mathbb{R})"), ("y=Ce^{x}", r"y = Ce^x \text{ (C is a constant)}"),
        (r"P(x)=cx^2 \text{ where } c \text{ is any real constant}", "P(x)=cx^2"),
        ("f(x)=kx", r"f(x)=kx \text{ with constant } k"), (r"f(x)=0, f(x)=cx \text{ for some constant } c", "f(x)=cx, f(x)=0"),
        ("f(x)=cx", r"f(x)=cx \text{ for all } x \text{, where } c \text{ is a constant}"),
        ("f(x)=cx", r"f(x)=cx \text{, where } c \text{ is a real constant, for all } x"),
        ("f(x)=c x", r"f(x)=c x\text{ for every }x\in\mathbb{R}"), ("a_n=c2^n", r"a_n=c2^n \text{ for some } c\in\mathbb{R}"),
        ("x=t, y=2t", r"x=t, y=2t \text{ where } t\in\mathbb{R}"), ("(t,2t)", r"(t,2t), t\in\mathbb{R}"),
        ("(t,2t)", r"(t,2t) \text{ for } t\in\mathbb{R}"), ("f(x)=cx", r"f(x)=cx \text{ (}c\text{ is a constant)}"),
        ("f(x)=cx", r"f(x)=cx\;(c\in\mathbb{R})"),
    ], [
        ("f(x)=cx", r"f(x)=cx \text{ for } c>0"), ("f(x)=cx", r"f(x)=cx \text{ where } c=2"),
        ("f(x)=cx", r"f(x)=cx \text{ for some integer } x"),
        ("f(x)=cx", r"f(x)=cx \text{ where } c \text{ is a nonzero constant}"),
        ("f(x)=cx", r"f(x)=cx \text{ for all nonzero } x"), ("f(x)=cx", r"f(x)=dx+c \text{ for some constant } c"),
        ("f(x)=cx", r"f(x)=cx \text{ or } x^2"), ("f(x)=cx", r"f(x)=cx \text{ for no constant } c"),
        ("f(x)=cx", r"f(x)=cx \text{ where } c \text{ is not constant}"),
        ("f(x)=cx", r"f(x)=cx \text{ where } c \text{ is odd}"), ("f(x)=cx", r"f(x)=cx \text{ for odd } c"),
        ("f(x)=x+1", r"f(x)=x+1 \text{ for some real } x"), ("f(x)=cx", r"f(x)=cx \text{ with } c\in[0,1]"),
        ("f(x)=cx", r"f(x)=cx \text{ for all } c\neq0"), ("f(x)=cx", r"f(x)=cx^2 \text{ for some constant } c"),
        ("f(x)=cx", r"f(x)=cx \text{ where } c \text{ is prime}"),
        ("y=Ce^x", r"y=Ce^{-x}, \text{ where } C \text{ is an arbitrary constant}"),
        ("f(x)=ax+b", r"f(x)=ax+b \text{ where } a \text{ and } b \text{ are equal}"),
    ]),
    "classes of integers": ([
        (r"n\equiv1\pmod6", r"n\equiv7\pmod6"), (r"n \equiv 1 \pmod 2", r"n \text{ is odd}"),
        (r"n \equiv 0 \pmod 2", r"n \text{ even}"), (r"\text{all even } n", "n=2k"),
        (r"\text{all even integers}", r"2k, k\in\mathbb{Z}"), (r"n \text{ is a multiple of } 3", "n=3k"),
        (r"n \text{ is divisible by } 3", r"n\equiv0\pmod3"), (r"3\mid n", "n=3k"),
        (r"n\equiv\pm1\pmod6", r"n\equiv1,5\pmod6"), (r"n\equiv 1 \text{ or } 5\pmod6", r"n\equiv\pm1 \pmod 6"),
        (r"n\equiv1,3\pmod4", r"n \text{ is odd}"), ("n=6k+1", r"n=6m+1, m\in\mathbb{Z}"),
        (r"n=6k+5 \text{ for some integer } k", r"n\equiv-1\pmod 6"), (r"n=4k+3,k\in\mathbb{Z}", r"n=4k-1, k\in\mathbb{Z}"),
        (r"\text{all odd positive integers}", r"\text{all odd positive integers}"),
        (r"\text{odd integers}", r"\text{all odd numbers}"), (r"\text{all multiples of } 4", "n=4k"),
        (r"n\equiv 2 \pmod 3", r"n\equiv 2 \text{ (mod 3)}"), (r"n \text{ odd}", r"n=2k-1, k\in\mathbb{Z}"),
        (r"\text{all prime numbers}", r"n \text{ is prime}"), ("n=2^k", r"\text{all powers of 2}"),
        (r"n\equiv1\pmod6", r"n\equiv1\bmod6"), (r"n\equiv1\pmod6", r"n \equiv 1 \mod 6"),
        (r"n \text{ is even}", r"\text{even }n"), (r"\text{all odd }n", r"\text{all odd values of } n"),
        (r"\text{all odd }n", r"\text{odd } n"), (r"n\text{ is odd}", r"\text{All odd integers } n"),
        (r"\{x|x=4k,k\in \mathbb{Z}\}", r"\{4k \mid k\in\mathbb{Z}\}"),
        (r"x=4k, k\in\mathbb{Z}", r"\{x \mid x=4k, k\in\mathbb{Z}\}"),
    ], [
        (r"n\equiv1\pmod6", "n=6k+2"), (r"n\equiv1\pmod6", "n=3k+1"), (r"n\equiv1\pmod6", "n=6k"),
        (r"n\equiv1\pmod6", "n=6n+1"), (r"\text{all odd } n", r"n \text{ even}"), (r"\text{all odd } n", "n=2k"),
        (r"\text{all odd } n", r"\text{all odd primes}"), (r"\text{all odd } n", r"\text{all } n"), ("n=2^k", "n=3^k"),
        ("n=2^k", "n=2k"), ("n=2^k", r"\text{powers of }4"), ("n=2^k", r"\text{multiples of }2"),
        (r"\text{all primes}", r"\text{all odd primes}"), (r"\text{all odd } n", r"\text{all odd } n \text{ except } 3"),
        (r"n\equiv1\pmod6", r"m\equiv1\pmod6"), (r"n\equiv\pm1\pmod6", r"n\equiv1\pmod6"),
        (r"\text{all odd } n", r"\text{not all odd } n"), (r"\text{all odd } n", r"\text{some odd } n"),
        (r"\text{all odd } n", r"\text{positive odd integers}"), (r"\text{all odd } n", r"n \text{ is not odd}"),
        (r"n\equiv1\pmod 6", "7"), (r"n\equiv1\pmod 6", r"\text{odd } n"), (r"n \text{ odd}", r"n \text{ odd}, n>1"),
        (r"n\equiv1,5\pmod6", r"n\equiv1,4\pmod6"), ("5", "n=6k+5"), ("n=6k+1", r"n=6k+7 \text{ for } k>0"),
        (r"n\equiv1\pmod6", r"n=6k+1 \text{ or } n=6k+2"), ("x=2k+1", "x=2m+1"),
        (r"\{x|x=4k,k\in \mathbb{Z}\}", r"\{2k \mid k\in\mathbb{Z}\}"), (r"\text{odd}", "n=2k+1"), ("n", r"\text{all odd } n"),
    ]),
    "conditions": ([
        (r"\begin{cases}0 & n \text{ even}\\ 1 & n \text{ odd}\end{cases}",
         r"0 \text{ if } n \text{ is even, } 1 \text{ if } n \text{ is odd}"),
        (r"\begin{cases}0 & n \text{ even}\\ 1 & n \text{ odd}\end{cases}", r"0 \text{ for even } n, 1 \text{ for odd } n"),
        (r"\begin{cases}0 & n \text{ even}\\ 1 & n \text{ odd}\end{cases}",
         r"0 \text{ when } n \text{ is even and } 1 \text{ when } n \text{ is odd}"),
        (r"\begin{cases}0 & n \text{ even}\\ 1 & n \text{ odd}\end{cases}", r"0 \text{ if } n \text{ is even; otherwise } 1"),
        (r"\begin{cases}0 & n \text{ even}\\ 1 & n \text{ odd}\end{cases}",
         r"\begin{cases} 1, & n=2k+1 \\ 0, & n=2k \end{cases}"),
        (r"0 \text{ if } n=1, 1 \text{ otherwise}", r"\begin{cases} 0 & n=1 \\ 1 & \text{otherwise}\end{cases}"),
        (r"0 \text{ if } n=1, 1 \text{ otherwise}", r"\begin{cases} 0 & \text{if } n=1 \\ 1 & \text{else}\end{cases}"),
        (r"\begin{cases} x^2 & x<0\\ x & x\ge 0\end{cases}",
         r"\begin{cases} x^2, & \text{for } x<0,\\ x, & \text{for } x\geq 0.\end{cases}"),
        (r"f(n)=\begin{cases}0 & n \text{ even}\\ 1 & n \text{ odd}\end{cases}",
         r"f(n)=0 \text{ if } n \text{ is even}, f(n)=1 \text{ if } n \text{ is odd}"),
        (r"n \text{ even}", r"\text{if } n \text{ is even}"), ("x>3", r"\text{if } x>3"), ("x>3", r"\text{when } x>3"),
        (r"f(n)=\begin{cases}0 & n \text{ even}\\ 1 & n \text{ odd}\end{cases}",
         r"\begin{cases}0 & n \text{ even}\\ 1 & n \text{ odd}\end{cases}"),
    ], [
        (r"\begin{cases}0 & n \text{ even}\\ 1 & n \text{ odd}\end{cases}",
         r"1 \text{ if } n \text{ is even, } 0 \text{ if } n \text{ is odd}"),
        (r"\begin{cases}0 & n \text{ even}\\ 1 & n \text{ odd}\end{cases}", r"0 \text{ if } n \text{ is even}"),
        (r"\begin{cases}0 & n \text{ even}\\ 1 & n \text{ odd}\end{cases}", "0, 1"),
        ("0,1", r"0 \text{ if } n \text{ is even, } 1 \text{ if } n \text{ is odd}"),
        ("0", r"0 \text{ if } n \text{ is even}"), ("0", r"0 \text{ if } x>0"), ("0", r"0 \text{ otherwise}"),
        (r"0 \text{ if } n=1, 1 \text{ otherwise}", r"1 \text{ if } n=1, 0 \text{ otherwise}"),
        (r"0 \text{ if } n=1, 1 \text{ otherwise}", r"0 \text{ if } n=2, 1 \text{ otherwise}"),
        (r"\begin{cases}0 & x<0\\ 1 & x=0 \\ 2 & x>0\end{cases}", r"\begin{cases}0 & x<0\\ 1 & \text{otherwise}\end{cases}"),
        (r"\begin{cases}0 & x<0\\ 1 & x=0 \\ 2 & x>0\end{cases}",
         r"\begin{cases}0 & x<0\\ 1 & \text{otherwise}\\ 2& \text{otherwise}\end{cases}"),
        (r"n \text{ even}", r"\text{unless } n \text{ is even}"), ("x>3", r"\text{if } x<3"),
        (r"\begin{cases} x^2 & x<0\\ x & x\ge 0\end{cases}", r"\begin{cases} x^2 & x\le0\\ x & x> 0\end{cases}"),
        (r"x \text{ if } x>0", "x"),
    ]),
    "numbered parts": ([
        (r"3, \frac12", r"(1) 3 \quad (2) \frac12"), (r"3, \frac12", "(a) 3; (b) 0.5"), (r"(a) 3 (b) \frac12", r"3; \frac12"),
        (r"(1)\ x>2;\ (2)\ x=5", "x>2, x=5"), ("3,4,5", r"\text{(i) } 3, \text{(ii) } 4, \text{(iii) } 5"),
        ("(1) 3; (2) 4", "(a) 3; (b) 4"), ("(1) 3; (2) 4", "1) 3 2) 4"), (r"\text{(a) Yes; (b) No}", r"\text{Yes, No}"),
        (r"3, \frac12", r"\text{Part (a): } 3; \text{ Part (b): } \frac12"), ("(1) a=2; (2) (1,3)", r"(1) 2 \quad (2) (1,3)"),
        ("3,4", r"\text{Question 1: }3, \text{Question 2: }4"), ("(i) 2 (ii) 3", r"(i)\; 2 \\ (ii)\; 3"),
    ], [
        (r"3, \frac12", r"(1) \frac12 \quad (2) 3"), ("(a) 3 (b) 4", "4, 3"), ("(a) 3 (b) 4", "3"), ("(a) 3 (b) 4", "(a) 3"),
        ("(a) 3 (b) 4", "(a) 3 (b) 5"), ("(a) 3 (b) 4", "(b) 3 (a) 4"), ("(a) 3 (b) 4", "(a) 3 (b) 4 (c) 5"),
        ("3,4", "(1) 3 (2) 4 (3) 5"), ("12", "(1)3, (2)4"), ("3", "(1) 3 (2) 3"), ("(3,4)", "(1) 4 (2) 3"),
        (r"\{3,4\}", "(1) 4, (2) 3"), ("6", "(1)3(2)"), ("(a) 3 (b) 4", r"(a) 3 \text{ or } (b) 4"),
    ]),
    "words cut elsewhere, dates": ([
        (r"\text{Player 1}", r"\text{Player }1"), (r"\text{Type II}", r"\text{Type }\text{II}"),
        (r"\text{Monday}", r"\text{Mon}\text{day}"), (r"\text{Team A}", r"\text{Team } A"),
        (r"\text{point }P", r"\text{point P}"), (r"\text{5 March}", r"\text{March 5}"),
        (r"\text{March 5, 2020}", r"\text{5 March 2020}"), (r"\text{March 5th}", r"\text{March }5"),
        (r"\text{Class 3B}", r"\text{Class }3B"), (r"\text{Group }A", r"\text{Group A}"),
    ], [
        (r"\text{Player 1}", r"\text{Player }2"), (r"\text{Type II}", r"\text{Type }III"),
        (r"\text{March 5}", r"\text{March 6}"), (r"\text{March 5}", r"\text{May 5}"), (r"\text{Team A}", r"\text{Team } B"),
        (r"\text{March 15}", r"\text{March }5"), (r"\text{Day 10}", r"\text{Day }1 0 0"), (r"\text{Team A}", "A"),
        ("1", r"\text{Player }1"), (r"\text{March 5, 2020}", r"\text{March 5, 2021}"),
    ]),
    "degrees in a sum": ([
        (r"180-2\alpha", r"180^\circ-2\alpha"), (r"90^\circ+\frac{A}{2}", r"90+\frac A2"),
        (r"\frac{\alpha+\beta}{2}", r"\frac{\alpha+\beta}{2}^\circ"), (r"(180-x)^\circ", r"180^\circ-x"),
        (r"180^\circ-2\alpha", r"\pi-2\alpha"), (r"360^\circ - 3x", r"(360-3x)^\circ"),
        (r"90^\circ-\frac{\alpha}{2}", r"\frac{180^\circ-\alpha}{2}"),
    ], [
        (r"180-2\alpha", r"180^\circ-\alpha"), (r"180^\circ-2\alpha", r"90^\circ-2\alpha"), ("90", r"180^\circ-90^\circ"),
        (r"\sin 30^\circ+x", r"\sin 30+x"), ("90-x", r"90^\circ+x"), (r"180^\circ-2\alpha", r"\pi-\alpha"),
        (r"180-2\alpha", r"\pi-2\alpha"),
    ]),
    "inverse and hyperbolic functions": ([
        (r"\frac12\ln\frac{1+x}{1-x}", r"\operatorname{arctanh}(x)"), (r"\ln(x+\sqrt{x^2-1})", r"\operatorname{arcosh} x"),
        (r"\ln(2+\sqrt3)", r"\cosh^{-1}2"), (r"\frac{\pi}{2}-\arctan x", r"\frac{\pi}{2}-\tan^{-1}x"),
        (r"\frac{1}{\cosh x}", r"\operatorname{sech} x"), (r"\arccos\frac12", r"\operatorname{arcsec}2"),
        (r"\ln(1+\sqrt2)", r"\operatorname{arcsinh}1"), (r"\ln(1+\sqrt2)", r"\sinh^{-1}(1)"),
        (r"\arcsin x", r"\text{arcsin}\, x"), (r"\operatorname{csch}x", r"\frac{1}{\sinh x}"),
        (r"\operatorname{arccosec} 2", r"\csc^{-1} 2"),
    ], [
        (r"\frac12\ln\frac{1+x}{1-x}", r"\tanh x"), (r"\frac12\ln\frac{1+x}{1-x}", r"\arctan x"),
        (r"\ln(x+\sqrt{x^2+1})", r"\operatorname{arcosh} x"), (r"\frac{1}{\cosh x}", r"\operatorname{csch} x"),
        (r"\cosh^{-1}2", r"\frac{1}{\cosh 2}"), (r"\sinh^{-1} x", r"\sinh x"),
    ]),
    "rows, columns and unit vectors": ([
        ("(1,2,3)", r"\begin{pmatrix}1\\2\\3\end{pmatrix}"), ("(1,2,3)", "(1,2,3)^T"),
        (r"\begin{pmatrix}1\\2\\3\end{pmatrix}", "(1,2,3)^T"),
        (r"\begin{pmatrix}1\\2\\3\end{pmatrix}", r"\begin{pmatrix}1&2&3\end{pmatrix}^T"),
        ("(1,2,3)", r"\hat i+2\hat j+3\hat k"), ("(1,2,3)", r"\mathbf{i}+2\mathbf{j}+3\mathbf{k}"),
        (r"2\mathbf{i}-3\mathbf{j}", r"2\hat{\imath}-3\hat{\jmath}"), (r"\begin{bmatrix}1\\2\end{bmatrix}", "[1,2]^T"),
        (r"\langle1,2,3\rangle", "(1,2,3)"), (r"\begin{pmatrix}1\\-2\\0\end{pmatrix}", r"\hat i-2\hat j"), ("[4, 2]", "4, 2"),
        ("[1, 5, 3]", "1, 5, 3"), (r"\vec{v}=(1,2)", r"\begin{pmatrix}1\\2\end{pmatrix}"),
    ], [
        ("(1,2,3)", r"\begin{pmatrix}1\\3\\2\end{pmatrix}"),
        (r"\begin{pmatrix}1\\2\\3\end{pmatrix}", r"\begin{pmatrix}1&2&3\end{pmatrix}"), ("(1,2,3)", r"\hat i+2\hat j-3\hat k"),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}^T"), ("(1,2,3)", r"\hat i+2\hat j"),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", "1,2"), ("[1,2]", "1,2"), ("[4,2]", "2,4"),
        ("(1,2)", r"\begin{pmatrix}2&1\end{pmatrix}"), (r"\begin{pmatrix}1&3\\2&4\end{pmatrix}", "(1,2,3,4)"),
    ]),
    "units": ([
        ("50.7", r"50.7\text{ Pa}\cdot\text{s}"), ("50.7", r"50.7\text{ mbar}"), ("3", r"3\text{ knots}"),
        ("5", r"5\text{ MeV}"), ("5", r"5\ \mathrm{T}"), ("5", r"5\text{ Gbps}"), ("5", r"5\text{ horsepower}"),
        ("2.5", r"2.5\text{ kPa}"), ("2", r"2\ \mathrm{mol/L}"), ("3", r"3\text{ dm}^3"), (r"5\text{ kWh}", r"18\text{ MJ}"),
        (r"1\text{ atm}", r"101325\text{ Pa}"), ("7", r"7\text{ mcg}"), ("7", r"7\text{ nautical miles}"),
        ("7", r"7\text{ light years}"), ("7", r"7 \text{ N/m}^2"), ("7", r"7 \text{ hp}"), ("7", r"7\text{ mA}"),
        ("7", r"7\text{ J/K}"), ("7", r"7\text{ rad/s}"),
    ], [
        (r"5\text{ kWh}", r"5\text{ kW}"), (r"5\text{ atm}", r"5\text{ bar}"), ("5", r"5\text{ or so}"),
        ("5", r"5\text{ wrong}"), ("5", r"5\text{ Bob}"), (r"5\text{ dB}", r"5\text{ Hz}"), ("5", r"5\text{ xyz}"),
        ("5", r"5\text{ million bytes}"), (r"5\text{ MB}", r"5\text{ Mb}"), (r"5 \text{ mA}", r"5\text{ MA}"),
    ]),
    "sentences around a word": ([
        (r"\text{Bob}", r"\text{Bob wins}"), (r"\text{Alice}", r"\text{Alice has the winning strategy}"),
        (r"\text{No}", r"\text{No, such a function does not exist}"), (r"\text{No}", r"\text{No, there is no such function}"),
        (r"\text{Yes}", r"\text{Yes, it is possible}"), (r"\text{Yes}", r"\text{Yes, there exists such a function}"),
        (r"\text{diverges}", r"\text{The series is divergent}"), (r"\text{diverges}", r"\text{The integral diverges}"),
        (r"\text{DNE}", r"\text{The limit does not exist.}"), (r"\text{converges}", r"\text{it converges}"),
        (r"\text{ellipse}", r"\text{The curve is an ellipse}"), (r"\text{ellipse}", r"\text{It is an ellipse}"),
        (r"\text{No solution}", r"\text{The equation has no solution}"),
        (r"\text{No solution}", r"\text{There are no solutions}"), (r"\emptyset", r"\text{no real solutions}"),
        (r"\text{True}", r"\text{The statement is true}"), (r"\text{False}", r"\text{The statement is false}"),
        ("5", r"\text{The answer is } 5"), ("5", r"\text{The sum is } 5"), ("5", r"\text{The limit is }5"),
        ("5", r"\text{The maximum value is }5"), (r"\text{does not exist}", r"\text{DNE}"),
        (r"\text{converges}", r"\text{The series is convergent}"),
        (r"\text{the first player}", r"\text{The first player wins}"),
        (r"\text{first player}", r"\text{first player has a winning strategy}"),
        (r"\text{injective}", r"\text{The function is injective}"),
        (r"\text{absolutely convergent}", r"\text{The series is absolutely convergent}"), (r"\text{No}", r"\text{No.}"),
        (r"\text{Yes}", r"\text{Yes}"), (r"\text{not possible}", r"\text{It is not possible}"),
        (r"\text{No}", r"\text{No, it is impossible}"),
    ], [
        (r"\text{Bob}", r"\text{Bob loses}"), (r"\text{Bob}", r"\text{Alice wins}"),
        (r"\text{Bob}", r"\text{Bob does not win}"), (r"\text{Bob}", r"\text{Bob or Alice wins}"),
        (r"\text{Bob}", r"\text{Bob has no winning strategy}"), (r"\text{No}", r"\text{Yes, it does}"),
        (r"\text{Yes}", r"\text{Yes, it does not}"), (r"\text{No}", r"\text{No, it does}"),
        (r"\text{Yes}", r"\text{Yes and no}"), (r"\text{Yes}", r"\text{Yes, no}"),
        (r"\text{converges}", r"\text{The series does not converge}"), (r"\text{diverges}", r"\text{The series converges}"),
        (r"\text{DNE}", r"\text{The limit exists}"), (r"\text{ellipse}", r"\text{It is not an ellipse}"),
        (r"\text{ellipse}", r"\text{It is a circle}"), (r"\text{ellipse}", r"\text{The curve is an ellipse or a circle}"),
        (r"\text{converges}", r"\text{converges conditionally}"), (r"\text{converges}", r"\text{converges or diverges}"),
        (r"\text{True}", r"\text{The statement is false}"), (r"\text{True}", r"\text{The statement is not true}"),
        ("5", r"\text{The answer is not } 5"), ("5", r"\text{The sum is not } 5"), ("5", r"\text{The sum is }6"),
        (r"\text{No solution}", r"\text{The equation has a solution}"), (r"\text{Yes}", r"\text{maybe Yes}"),
        (r"\text{absolutely convergent}", r"\text{The series is convergent}"), (r"\text{No}", r"\text{No idea}"),
        (r"\emptyset", r"\text{none of these}"), ("5", r"\text{The opposite is } 5"),
        ("5", r"\text{The answer is } 5 \text{ or } 6"),
    ]),
    "neighbours of all kinds": ([
        (r"x \text{ if } x>0, 0\text{ otherwise}", r"\begin{cases}x & x>0\\0 & x\le0\end{cases}"),
        (r"1 \text{ if } n \text{ is even}, 0\text{ otherwise}",
         r"1 \text{ if } n \text{ is even}, 0\text{ if } n \text{ is odd}"),
        (r"1 \text{ if } n=1, 0\text{ otherwise}", r"\begin{cases}1 & n=1\\0 & n\ne1\end{cases}"),
        (r"f(x)=ax \text{ for some real constant } a", r"f(x) = ax,\ a \in \mathbb{R}"),
        ("f(x)=ax", r"f(x)=ax \quad (a\in\mathbb R)"),
        ("f(x)=ax", r"f(x)=ax\text{ for all }x\in\mathbb{R}\text{, where }a\text{ is an arbitrary real constant}"),
        ("f(n)=n+c", r"f(n)=n+c\text{ for all } n\in\mathbb{N}"),
        (r"P(x)=x^n \text{ for some positive integer } n", "P(x)=x^n"),
        ("y = C_1e^x+C_2e^{-x}", r"y = C_1e^x+C_2e^{-x}, \text{ where } C_1, C_2 \text{ are constants}"),
        ("y = C_1e^x+C_2e^{-x}", r"y = C_1e^x+C_2e^{-x} \text{ where } C_1 \text{ and } C_2 \text{ are arbitrary constants}"),
        ("y = Ce^{2x}", r"y = Ce^{2x} \text{ for some constant } C"),
        ("y = Ce^{2x}", r"y = Ce^{2x} \text{ (where } C \text{ is an arbitrary constant)}"),
        (r"x=\frac{\pi}{4}+k\pi", r"x=\frac{\pi}{4}+k\pi, k \in \mathbb{Z}"),
        (r"x=\frac{\pi}{4}+k\pi,\ k\in\mathbb{Z}", r"x=\frac{\pi}{4}+n\pi \text{ for any integer } n"),
        (r"x=\frac{\pi}{4}+k\pi", r"x = \frac{\pi}{4}+k\pi \text{ where } k \text{ is an integer}"),
        (r"f(x)=0 \text{ and } f(x)=x", r"f(x)=x \text{ for all } x\text{ and } f(x)=0 \text{ for all } x"),
        ("f(x)=x", r"f(x)=x\text{ for all positive real numbers }x"), ("(a,b)=(t,-t)", r"(t,-t) \text{ for any real } t"),
        (r"\frac{n(n+1)}{2}", r"\frac{n(n+1)}{2}\text{ for all positive integers }n"),
        (r"c\cdot x^2", r"cx^2\text{, with }c\text{ any real number}"),
        (r"n\equiv 0,1\pmod 4", r"n \equiv 0 \text{ or } 1 \pmod{4}"), (r"n\equiv 0,1\pmod 4", r"n = 4k \text{ or } n = 4k+1"),
        ("n=3k+1", r"n \equiv 1 \pmod{3}"), (r"n\text{ is odd}", r"n \equiv 1 \pmod 2"),
        (r"\text{even integers } n", r"\text{All even integers}"), (r"n \text{ is prime}", r"\text{primes}"),
        (r"p\equiv 3 \pmod 4", "p = 4k+3"), (r"n \not\equiv 0 \pmod 3", r"3 \nmid n"),
        (r"n\text{ not divisible by }3", r"3\nmid n"), (r"\text{all integers}", r"\mathbb{Z}"),
        (r"\begin{cases}1 & \text{if } p=2\\0 & \text{otherwise}\end{cases}",
         r"1 \text{ if } p=2, \text{ and } 0 \text{ otherwise}"),
        (r"\begin{cases}1 & \text{if } p=2\\0 & \text{otherwise}\end{cases}",
         r"1 \text{ for } p=2; 0 \text{ for all other } p"),
        (r"n \text{ if } n \text{ is odd}, n/2 \text{ if } n \text{ is even}",
         r"\begin{cases} n & n \text{ odd} \\ n/2 & n \text{ even}\end{cases}"),
        (r"n \text{ if } n \text{ is odd}, n/2 \text{ if } n \text{ is even}",
         r"\frac n2 \text{ for even } n \text{ and } n \text{ for odd } n"),
        (r"\begin{cases} n & n \text{ odd} \\ n/2 & n \text{ even}\end{cases}",
         r"\begin{cases} n & \text{if $n$ is odd} \\ \frac{n}{2} & \text{if $n$ is even}\end{cases}"),
        (r"\begin{cases} n & n \text{ odd} \\ n/2 & n \text{ even}\end{cases}",
         r"\begin{cases} n & \text{for odd } n \\ \frac{n}{2} & \text{for even } n\end{cases}"),
        (r"(1)\ \frac12\ (2)\ \frac13", r"\text{(1) }\frac12\text{; (2) }\frac13"),
        (r"\frac12, \frac13", r"\text{(a) } \frac12, \text{ (b) } \frac13"), ("(a) 5, (b) 7", "a) 5, b) 7"),
        ("5,7", r"\text{a. } 5 \text{ b. } 7"), ("(1) x+1; (2) x^2", r"(1)\; x+1,\quad (2)\; x^2"),
        (r"\text{min } 2, \text{max } 6", r"\text{minimum: } 2, \text{ maximum: } 6"),
        (r"\text{maximum } 6, \text{minimum } 2", r"\max = 6, \min = 2"),
        (r"\text{Friday the 13th}", r"\text{Friday the }13\text{th}"), (r"\text{Plan B}", r"\text{Plan }\mathrm{B}"),
        (r"\text{Figure 3}", r"\text{Figure}~3"), (r"\text{June 1}", r"\text{June 1st}"),
        (r"\text{June 1, 1999}", r"\text{1 June 1999}"), (r"\text{Company A}", r"\text{company A}"),
        (r"\text{12:30 PM}", r"12:30\text{ PM}"), ("(3,-2)", r"3\vec i-2\vec j"),
        (r"\begin{pmatrix}3\\-2\end{pmatrix}", r"\langle 3,-2\rangle"), (r"\vec{v}=3\mathbf i-2\mathbf j", "(3,-2)"),
        (r"\left(\frac12,0,1\right)", r"\begin{bmatrix} \frac12 \\ 0 \\ 1\end{bmatrix}"),
        ("(1,2,3)^{T}", r"\begin{pmatrix}1\\2\\3\end{pmatrix}"), (r"[1,2,3]^\top", "(1,2,3)"), ("(1,2,3)", "[1,2,3]"),
        (r"90^\circ-\alpha", r"90-\alpha"), (r"2\theta+30^\circ", r"(2\theta+30)^\circ"),
        (r"45^\circ+\frac{\theta}{2}", r"45+\frac{\theta}{2}\text{ degrees}"),
        (r"\operatorname{arctanh}\frac12", r"\frac12\ln 3"), (r"\operatorname{arcosh}(3)", r"\ln(3+2\sqrt2)"),
        (r"\operatorname{sech}^2 x", r"\frac{1}{\cosh^2 x}"), (r"\tan^{-1}2", r"\arctan 2"),
        (r"\operatorname{cosec} x", r"\frac1{\sin x}"), (r"\sec^{-1} 2+x", r"\frac{\pi}{3}+x"), ("12", r"12 \text{ hPa}"),
        ("12", r"12\text{ kcal/mol}"), ("12", r"12\ \mathrm{mg/dL}"), ("12", r"12\text{ mol/L}"), ("12", r"12 \text{ m/s}^2"),
        ("12", r"12\text{ W/m}^2"), ("12", r"12\text{ lbs}"), ("12", r"12\text{ eV}"), ("12", r"12\text{ GeV}"),
        ("12", r"12 \text{ light-years}"), ("12", r"12\text{ Hz}"), ("12", r"12 \text{ kN}"), ("12", r"12\ \text{kJ/mol}"),
        ("12", r"12\text{ AU}"), ("12", r"12\text{ g/cm}^3"), ("12", r"12\text{ mph}"), ("12", r"12\text{ mi/h}"),
        ("12", r"12\text{ degrees Celsius}"), ("12", r"12^{\circ}\mathrm{C}"), ("12", r"12\,^\circ\text{F}"),
        ("12", r"12\ \mu\text{F}"), ("12", r"12\text{ seconds}"), ("12", r"12\text{ kg m/s}"),
        ("12", r"12\text{ N}\cdot\text{m}"), ("12", r"12\text{ J}\,\text{s}"), ("12", r"12\text{ ns}"),
        (r"\text{Yes}", r"\text{Yes, there does}"), (r"\text{No}", r"\text{No, there is not}"),
        (r"\text{No}", r"\text{No, there does not exist such a number}"), (r"\text{No}", r"\text{No, it is not}"),
        (r"\text{Alice}", r"\text{Alice can always win}"), (r"\text{Alice}", r"\text{Alice will win}"),
        (r"\text{second player}", r"\text{The second player has a winning strategy}"),
        (r"\text{Beth}", r"\text{The winner is Beth}"), (r"\text{diverges}", r"\text{the series diverges}"),
        (r"\text{divergent}", r"\text{The sequence is divergent}"),
        (r"\text{does not exist}", r"\text{The limit doesn't exist}"), (r"\text{parabola}", r"\text{The graph is a parabola}"),
        (r"\text{parabola}", r"\text{a parabola}"), (r"\text{no solution}", r"\text{There is no solution}"),
        (r"\text{no solution}", r"\text{No solutions exist}"),
        (r"\text{infinitely many}", r"\text{There are infinitely many solutions}"),
        (r"\text{right triangle}", r"\text{The triangle is a right triangle}"), ("12", r"\text{The area is } 12\text{ cm}^2"),
        ("12", r"\text{There are } 12 \text{ ways}"), ("12", r"\text{The minimum value is } 12"),
        ("12", r"\text{the value of } x \text{ is } 12"), ("x+1", r"\text{The remainder is } x+1"), ("12", r"\text{It is }12"),
        (r"\text{conditionally convergent}", r"\text{converges conditionally}"),
        (r"\text{Bob}", r"\text{Bob finished first}"), (r"\text{the first player}", r"\text{The first player wins}"),
        (r"\text{Wednesday}", r"\text{It falls on a Wednesday}"), (r"\text{July 4, 1976}", r"\text{July } 4, 1976"),
        (r"6 \text{ red and } 4 \text{ blue}", r"\text{6 red and 4 blue}"),
        (r"6 \text{ red and } 4 \text{ blue}", r"4\text{ blue and }6\text{ red}"), (r"22.5^\circ", r"22^\circ30'"),
        (r"22.5^\circ", r"(\frac{45}{2})^\circ"), (r"f(n)=an+b", r"f(n)=an+b \text{ for arbitrary integers } a, b"),
        (r"\text{undefined}", r"\text{The slope is undefined}"), (r"\text{tangent}", r"\text{The line is tangent}"),
    ], [
        (r"\text{Bob}", r"\text{Alice finished first}"), (r"\text{Bob}", r"\text{Bob finished last}"),
        (r"\text{Bob}", r"\text{Bob did not finish first}"), (r"\text{Wednesday}", r"\text{It falls on a Thursday}"),
        (r"\text{July 4, 1976}", r"\text{July } 5, 1976"), (r"\text{July 4, 1976}", r"\text{July } 4"),
        (r"6 \text{ red and } 4 \text{ blue}", r"4\text{ red and }6\text{ blue}"), ("6", r"6\text{ red and }4\text{ blue}"),
        (r"6 \text{ red and } 4 \text{ blue}", r"6\text{ red and }4\text{ green}"), ("10", r"\text{6 red and 4 blue}"),
        (r"22.5^\circ", r"22^\circ3'"), ("22", r"22^\circ30'"), (r"22.5^\circ", r"(\frac{45}{4})^\circ"),
        (r"3\nmid n", r"3\mid n"), (r"3\nmid n", "n=3k"),
        (r"n \text{ is not divisible by } 3", r"n \text{ is divisible by } 3"), (r"n\not\equiv0\pmod3", r"n\equiv1\pmod3"),
        (r"1 \text{ if } p=3, 0\text{ otherwise}", r"\begin{cases}1 & \text{otherwise}\\0 & \text{otherwise}\end{cases}"),
        (r"1 \text{ if } p=2, 0\text{ otherwise}", r"1 \text{ if } p=2, 0\text{ if } p=3"),
        (r"x \text{ if } x>0, 0\text{ otherwise}", r"x \text{ if } x>0, 0\text{ if } x<0"),
        (r"1 \text{ if } n \text{ is even}, 0\text{ otherwise}", r"1 \text{ if } n \text{ is even}, 0\text{ if } n=4k+1"),
        ("f(x)=ax", r"f(x)=ax \text{ for some positive constant } a"), ("f(x)=ax", r"f(x)=ax\text{ where }a\in\{0,1\}"),
        ("f(x)=ax", r"f(x)=ax\text{ where }a \text{ is a positive integer}"),
        (r"f(x)=ax \text{ for some integer } a", r"f(x)=ax\text{ for some } a>2"), ("f(x)=x", r"f(x)=x\text{ for all }x\ne1"),
        ("f(x)=x", r"f(x)=x\text{ for rational }x, 0\text{ otherwise}"),
        (r"x=\frac{\pi}{4}+k\pi", r"x=\frac{\pi}{4}+k\pi, k\in\{0,1\}"),
        (r"x=\frac{\pi}{4}+k\pi", r"x=\frac{\pi}{4}+2k\pi, k\in\mathbb{Z}"),
        (r"x=\frac{\pi}{4}", r"x=\frac{\pi}{4}+k\pi, k\in\mathbb{Z}"), ("5", r"5 \text{ if } n \text{ is even}"),
        ("5", r"5\text{ is not the answer}"), ("5", r"\text{The answer is not }5"), ("5", r"5 \text{ with probability } 1/2"),
        ("5", r"5\text{ for some }n"), ("5", r"\text{if } x=5"), ("5", r"x \text{ is not } 5"),
        ("5", r"\text{the sum is at least } 5"), ("5", r"\text{The product is } 5 \text{ or } 6"), ("5", r"\text{minus is }5"),
        ("x=5", r"y \text{ is } 5"), ("5", r"2 \text{ is } 5"), ("5", r"\text{The maximum is }6, \text{the minimum is }5"),
        (r"n\equiv1\pmod3", r"n\equiv1\pmod3, n\ne 4"), (r"n\equiv1\pmod3", r"n=3k+1 \text{ for } k\ge 5"),
        ("n=3k+1", r"n=3k+1, k \text{ odd}"), (r"\text{all even } n", r"\text{no even } n"),
        (r"\text{all even } n", r"\text{even } n \text{ only if } n>4"), (r"n \text{ is even}", r"n \text{ is not even}"),
        (r"n \text{ is even}", r"n \text{ is odd or even}"), (r"n\text{ is even}", r"m\text{ is even}"),
        (r"\text{multiples of } 3", r"\text{multiples of } 6"), (r"\text{powers of }2", r"\text{even powers of }2"),
        (r"n\equiv 0,1\pmod 4", "n = 4k"), ("n=2^k", "n=2^{k+1}"), ("3k+1", "3k+4"), ("6k+1", "6k-5"),
        (r"\begin{cases}1 & p=2\\0 & \text{otherwise}\end{cases}", r"0 \text{ if } p=2, 1\text{ otherwise}"),
        (r"\begin{cases}1 & p=2\\0 & \text{otherwise}\end{cases}", r"1 \text{ if } p=3, 0\text{ otherwise}"),
        (r"\begin{cases}1 & p=2\\0 & \text{otherwise}\end{cases}", "1"),
        (r"\begin{cases}1 & p=2\\0 & p=3\end{cases}", r"\begin{cases}1 & \text{otherwise}\\0 & \text{otherwise}\end{cases}"),
        (r"\begin{cases}1 & p=2\\0 & p=3\end{cases}", r"1 \text{ if } p=2, 0 \text{ if } p=3, 5 \text{ otherwise}"),
        ("n>2", r"\text{if } n>3"), ("5,7", "(a) 7, (b) 5"), ("(a) 5, (b) 7", "5"), ("(a) 5, (b) 7", "(a) 5, (b) 7, 8"),
        ("35", "(a) 5 (b) 7"), ("5", "(a) 5 (b) 7"), ("7", r"(1) 5 \text{ or } (2) 7"), ("5,7", "(5)(7)"),
        ("5,7", "(2) 5 (1) 7"), (r"\text{June 1}", r"\text{July 1}"), (r"\text{June 1}", r"\text{June 11}"),
        (r"\text{Plan B}", r"\text{Plan }A"), (r"\text{Type II}", r"\text{Type }I"), ("(3,-2)", r"3\vec i+2\vec j"),
        ("(3,-2)", r"3\hat j-2\hat i"), ("(1,2)", "(2,1)^T"),
        (r"\begin{pmatrix}1&2\end{pmatrix}", r"\begin{pmatrix}1&2\end{pmatrix}^T"), ("A", "A^T"),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}^T", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"),
        (r"90^\circ-\alpha", r"\alpha-90"), (r"90^\circ-\alpha", r"\frac{\pi}{2}-2\alpha"), ("90", r"(90-x)^\circ"),
        (r"\cos 60^\circ", r"\cos 60"), (r"60^\circ x", r"\frac{\pi}{3}+x"),
        (r"\operatorname{arctanh}x", r"\operatorname{arctan}x"), (r"\tanh^{-1}x", r"\frac{1}{\tanh x}"),
        (r"\operatorname{arcosh}3", r"\operatorname{arsinh}3"), (r"\operatorname{sech} x", r"\cosh x"),
        (r"12\text{ kPa}", r"12\text{ Pa}"), (r"12\text{ atm}", r"12\text{ torr}"), ("12", r"12\text{ Anna}"),
        ("12", r"12\text{ is wrong}"), (r"12\text{ GB}", r"12\text{ MB}"), ("12", r"12\text{ fake}"),
        ("12", r"12\text{ kWh or }13"), (r"12\text{ km}", r"12\text{ m}"), ("12", r"12\text{ hundred}"),
        (r"\text{Yes}", r"\text{Yes, it is not possible}"), (r"\text{Yes}", r"\text{No, it is possible}"),
        (r"\text{No}", r"\text{No, there is such a number}"), (r"\text{Alice}", r"\text{Alice always loses}"),
        (r"\text{Alice}", r"\text{Alice and Bob win}"), (r"\text{Alice}", r"\text{Alice never wins}"),
        (r"\text{Alice}", r"\text{Not Alice wins}"), (r"\text{diverges}", r"\text{The series does not diverge}"),
        (r"\text{parabola}", r"\text{The graph is not a parabola}"), (r"\text{parabola}", r"\text{a parabola or hyperbola}"),
        (r"\text{no solution}", r"\text{There is a solution}"),
        (r"\text{no solution}", r"\text{There is no real solution but a complex solution}"),
        (r"\text{conditionally convergent}", r"\text{absolutely convergent}"),
        (r"\text{converges}", r"\text{never converges}"), (r"\text{True}", r"\text{Not true}"),
        (r"\text{even}", r"\text{The function is odd}"), (r"\text{even}", r"\text{The function is neither even nor odd}"),
        (r"\text{even}", r"\text{The function is even and odd}"), (r"\text{does not exist}", r"\text{The limit exists}"),
        ("0", r"\text{does not exist}"), (r"\text{Yes}", r"\text{Yes?}"),
    ]),
}  # fmt: skip


def right(gold, answer):
    return judge_answer(rf"\boxed{{{answer}}}", gold).right


@pytest.mark.parametrize("kind", KINDS)
def test_a_neighbour_of_the_same_meaning_is_right(kind):
    assert [pair for pair in KINDS[kind][0] if not right(*pair)] == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_neighbour_of_another_meaning_is_wrong(kind):
    assert [pair for pair in KINDS[kind][1] if right(*pair)] == []


EXAMPLES = [
    example
    for line in GRAMMAR.splitlines()
    if "// " in line and not line.startswith("//")
    for example in line.partition("// ")[2].split("; ")
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_example_behind_a_rule_is_read(example):
    text = normalize(example)
    body = normalize(rf"x {example}")  # of a clause
    words = re.sub(r"\\text\{(.*)\}", r"\1", example)
    assert (
        read_parts(text)
        or read_pieces(text)
        or read_pieces(body)
        or read_sentence(words)
        or read_condition(text) != text
    )


def test_every_rule_has_an_example():
    rules = GRAMMAR.partition("\nFOR:")[0].splitlines()
    helpers = [line for line in rules if re.match(r"_|adjectives|predicate|    \| OF|    \| THERE|   \| NO", line)]
    assert [line for line in rules if line.strip() and "//" not in line and line not in helpers] == []


@pytest.mark.parametrize("gold", [
    "so the answer is unclear", "answers may vary", "Unclear for n=1",
    "the value is unknown to us", "the proof is left to the reader", "there is something wrong here",
    "the claim is proved for all n", "the result is rather hard to tell", "The area is quite large and the volume is small",
])  # fmt: skip
def test_a_ground_truth_of_prose_is_not_understood(gold):
    assert not judge_answer(r"\boxed{5}", gold, "What is 2 + 2?").gold_understood
    assert judge_answer(rf"\boxed{{{gold}}}", gold).right, "the ground truth itself is right"


@pytest.mark.parametrize(
    "gold", ["The sum is 5", "The curve is an ellipse", "right angle", "the sum is mgh", "ellipse"]
)
def test_a_ground_truth_in_words_is_understood(gold):
    assert judge_answer(r"\boxed{7}", gold).gold_understood
